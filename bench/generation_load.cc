// Puts generation requests on one model in an engine or on a server: Chairlift's half of the
// decoder benchmark.
//
//   generation_load FILE|FOLDER WORKERS COUNTS.txt BEAMS     a model in process
//   generation_load http://HOST:PORT MODEL CONNECTIONS COUNTS.txt BEAMS
//   > closed CLIENTS WARMUP SECONDS SEED     always CLIENTS concurrent requests
//   > open RATE SECONDS SEED                 Poisson arrivals, whatever the answers do
//   > beside CLIENTS WARMUP SECONDS PROMPT EVERY_MS    like `closed`; in addition, a prompt of
//                                            PROMPT tokens with an answer of one token is sent
//                                            periodically, which does not count in the results
//   < one line of JSON: tokens per second, times to the first token, between tokens and of answers;
//     and the mean share of the used blocks of keys and values that has tokens in it (in process)
//
// A line of COUNTS.txt has the number of tokens of a prompt and of its answer. Requests take the
// lines in turn.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/status.h"
#include "chairlift/engine.h"
#include "cli/load/idle.h"
#include "cli/load/token_load.h"
#include "cli/load/token_target.h"
#include "cli/model_path.h"

namespace chairlift {
namespace {

using std::chrono::nanoseconds;

nanoseconds ToNanoseconds(double seconds) {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(seconds));
}

std::string Json(const Quantiles& of) {
  return fmt::format(R"({{"mean": {:.3f}, "p50": {:.3f}, "p90": {:.3f}, "p99": {:.3f}}})", of.mean,
                     of.p50, of.p90, of.p99);
}

std::string Json(const TokenReport& report, double cache_in_use) {
  int64_t failed = 0;
  for (const auto& [message, count] : report.requests.failures) {
    std::fprintf(stderr, "%ld requests failed: %s\n", static_cast<long>(count), message.c_str());
    failed += count;
  }
  const LoadReport& of = report.requests;
  return fmt::format(
      R"({{"requests": {}, "failed": {}, "requests_per_s": {:.4f}, "prompt_tokens_per_s": {:.2f}, )"
      R"("output_tokens_per_s": {:.2f}, "first_ms": {}, "between_ms": {}, "latency_ms": {}, )"
      R"("cache_in_use": {:.4f}}})",
      of.succeeded, failed, of.achieved_rate, report.prompt_tokens_per_s,
      report.output_tokens_per_s, Json(report.first_ms), Json(report.between_ms),
      Json(Quantiles{of.mean_ms, of.p50_ms, of.p90_ms, of.p99_ms, of.max_ms}), cache_in_use);
}

// Samples 50 times per second which share of an engine's used blocks has tokens in it.
class CacheWatch {
 public:
  // `engine`: null if there is nothing to sample.
  CacheWatch(Engine* engine, std::string model) {
    if (engine == nullptr) return;
    thread_ = std::jthread([this, engine, model = std::move(model)](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        const StatusOr<std::vector<ModelStatistics>> all = engine->Statistics(model);
        if (!all.ok() || all->empty() || !all->front().generation) continue;
        const GenerationStatistics& of = *all->front().generation;
        room_ += of.blocks_used * of.block_tokens;
        held_ += of.tokens_used;
      }
    });
  }

  // Call it once.
  double Mean() {
    thread_ = {};
    return room_ == 0 ? 0 : static_cast<double>(held_) / static_cast<double>(room_);
  }

 private:
  int64_t held_ = 0, room_ = 0;
  std::jthread thread_;
};

class Generations {
 public:
  // `engine`: the engine of the target, if it is in this process.
  Generations(TokenTarget& target, Engine* engine, std::string model,
              std::vector<TokenCounts> counts)
      : target_(target), engine_(engine), model_(std::move(model)), counts_(std::move(counts)) {}

  std::string Closed(int clients, double warmup, double seconds, uint64_t seed) {
    CacheWatch watch(engine_, model_);
    const std::vector<TokenSample> samples = KeepTokenLoad(
        target_, {.clients = clients, .seconds = warmup + seconds, .seed = seed, .next = [this] {
                    return counts_[next_++ % counts_.size()];
                  }});
    return Json(SummarizeTokens(samples, ToNanoseconds(warmup), ToNanoseconds(warmup + seconds)),
                watch.Mean());
  }

  std::string Open(double rate, double seconds, uint64_t seed) {
    CacheWatch watch(engine_, model_);
    std::mt19937_64 random(seed);
    std::exponential_distribution<double> gap(rate);
    std::vector<Arrival> schedule;
    for (double at = gap(random); at < seconds; at += gap(random)) {
      const TokenCounts& counts = counts_[next_++ % counts_.size()];
      schedule.push_back({ToNanoseconds(at), counts.prompt, counts.output});
    }
    const std::vector<TokenSample> samples = PutTokenLoad(target_, schedule, seed);
    nanoseconds last = ToNanoseconds(seconds);
    for (const TokenSample& sample : samples) last = std::max(last, sample.done + nanoseconds(1));
    return Json(SummarizeTokens(samples, nanoseconds(0), last), watch.Mean());
  }

  std::string Beside(int clients, double warmup, double seconds, int64_t prompt, double every_ms) {
    std::vector<Arrival> schedule;
    for (double at = 0; at < warmup + seconds; at += every_ms * 1e-3) {
      schedule.push_back({ToNanoseconds(at), prompt, 1});
    }
    std::thread prompts([&] { PutTokenLoad(target_, schedule, 2); });
    std::string figures = Closed(clients, warmup, seconds, 1);
    prompts.join();
    return figures;
  }

 private:
  TokenTarget& target_;
  Engine* const engine_;
  const std::string model_;
  const std::vector<TokenCounts> counts_;
  size_t next_ = 0;
};

Status Serve(int argc, char** argv) {
  const bool http = argc > 1 && std::string_view(argv[1]).starts_with("http://");
  if (argc != (http ? 6 : 5)) {
    return InvalidArgument(
        "usage: {0} FILE|FOLDER WORKERS COUNTS.txt BEAMS\n"
        "       {0} http://HOST:PORT MODEL CONNECTIONS COUNTS.txt BEAMS",
        argv[0]);
  }
  const int beams = std::atoi(argv[argc - 1]);
  std::string name;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<TokenTarget> target;
  if (http) {
    CHAIRLIFT_ASSIGN_OR_RETURN(target,
                               MakeHttpTokenTarget(argv[1], argv[2], beams, std::atoi(argv[3])));
  } else {
    EngineOptions options;
    options.workers = std::atoi(argv[2]);
    CHAIRLIFT_ASSIGN_OR_RETURN(engine, Engine::Create(options));
    CHAIRLIFT_ASSIGN_OR_RETURN(const ModelPath model, FindModel(argv[1]));
    CHAIRLIFT_RETURN_IF_ERROR(engine->LoadModel(model.name, model.path, model.config));
    CHAIRLIFT_ASSIGN_OR_RETURN(target, MakeEngineTokenTarget(*engine, model.name, beams));
    name = model.name;
  }
  std::vector<TokenCounts> counts;
  std::ifstream lines(argv[argc - 2]);
  for (TokenCounts one; lines >> one.prompt >> one.output;) counts.push_back(one);
  if (counts.empty()) return InvalidArgument("{} has no counts of tokens", argv[argc - 2]);
  Generations load(*target, engine.get(), std::move(name), std::move(counts));
  WaitUntilIdle();
  std::cout << "ready" << std::endl;

  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb;
    double first = 0, second = 0, third = 0, fourth = 1, fifth = 1;
    words >> verb >> first >> second >> third >> fourth >> fifth;
    std::string result;
    if (verb == "closed") {
      result = load.Closed(static_cast<int>(first), second, third, static_cast<uint64_t>(fourth));
    } else if (verb == "open") {
      result = load.Open(first, second, static_cast<uint64_t>(third));
    } else if (verb == "beside") {
      result =
          load.Beside(static_cast<int>(first), second, third, static_cast<int64_t>(fourth), fifth);
    } else {
      return InvalidArgument("'{}' is not closed, open or beside", verb);
    }
    std::cout << result << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace chairlift

int main(int argc, char** argv) {
  const chairlift::Status status = chairlift::Serve(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", chairlift::Message(status).c_str());
  return 1;
}
