// Sequences of given lengths through one model in one engine, as fast as it takes them or at a
// rate: the half of the cellular benchmark that is ours.
//
//   sequence_load MODEL.onnx POLICY MAX_ROWS WORKERS LENGTHS.txt VOCABULARY    MAX_ROWS 0: as timed
//   > closed CLIENTS SECONDS     CLIENTS requests are always under way; measured from when as many
//                                have been answered
//   > open RATE SECONDS SEED     Poisson arrivals, whatever the answers do
//   < one line of JSON: requests and tokens a second, latencies in ms, and where the workers' time
//   went
//
// Latency counts from the scheduled arrival. LENGTHS.txt holds one length a line; requests take
// them in turn, with token ids at random, to the model's input "tokens" [1, length].
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "chairlift/engine.h"

namespace chairlift {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

class Load {
 public:
  Load(Engine& engine, const std::vector<int64_t>& lengths, int64_t vocabulary) : engine_(engine) {
    std::mt19937 random(1);
    for (int64_t length : lengths) {
      Tensor tokens = Tensor::Allocate(DType::kInt64, {1, length});
      for (int64_t i = 0; i < length; ++i) {
        tokens.data<int64_t>()[i] = static_cast<int64_t>(random() % vocabulary);
      }
      inputs_.push_back(std::move(tokens));
    }
  }

  std::string Closed(int clients, double seconds) {
    Begin();
    to_warm_up_ = clients;
    window_ = ToDuration(seconds);
    for (int i = 0; i < clients; ++i) Send(SteadyClock::now(), true);
    Wait();
    return Result(seconds);
  }

  std::string Open(double rate, double seconds, unsigned seed) {
    std::mt19937 random(seed);
    std::exponential_distribution<double> gap(rate);
    Begin();
    before_ = Statistics();
    const auto start = SteadyClock::now();
    for (double at = gap(random); at < seconds; at += gap(random)) {
      const auto due = start + ToDuration(at);
      std::this_thread::sleep_until(due);
      Send(due, false);
    }
    Wait();
    after_ = Statistics();
    return Result(std::chrono::duration<double>(SteadyClock::now() - start).count());
  }

 private:
  static SteadyClock::duration ToDuration(double seconds) {
    return std::chrono::duration_cast<SteadyClock::duration>(
        std::chrono::duration<double>(seconds));
  }

  void Begin() {
    latencies_.clear();
    tokens_ = 0;
    failed_ = 0;
    to_warm_up_ = 0;
    end_.reset();
    over_ = false;
  }

  void Send(SteadyClock::time_point due, bool again) {
    const Tensor& tokens = inputs_[next_++ % inputs_.size()];
    InferRequest request;
    request.model = "model";
    request.inputs = {{"tokens", tokens}};
    ++under_way_;
    const int64_t length = tokens.shape()[1];
    engine_.InferAsync(std::move(request),
                       [this, due, again, length](const StatusOr<InferResponse>& answer) {
                         const auto now = SteadyClock::now();
                         const bool more = Note(answer.ok(), due, now, length) && again;
                         if (more) Send(now, true);
                         const std::lock_guard<std::mutex> lock(mutex_);
                         if (--under_way_ == 0) told_.notify_one();
                       });
  }

  // Whether a client goes on.
  bool Note(bool ok, SteadyClock::time_point due, SteadyClock::time_point now, int64_t length) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!ok) {
      ++failed_;
      return false;
    }
    if (to_warm_up_ > 0) {
      if (--to_warm_up_ > 0) return true;
      before_ = Statistics();
      end_ = now + window_;
      return true;
    }
    if (end_ && now >= *end_) {
      if (!over_) after_ = Statistics();
      over_ = true;
      return false;
    }
    latencies_.push_back(Milliseconds(now - due).count());
    tokens_ += length;
    return true;
  }

  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    told_.wait(lock, [this] { return under_way_ == 0; });
  }

  std::string Result(double seconds) {
    std::sort(latencies_.begin(), latencies_.end());
    const auto quantile = [&](double q) {
      if (latencies_.empty()) return 0.0;
      return latencies_[static_cast<size_t>(q * static_cast<double>(latencies_.size() - 1))];
    };
    const Shares shares = SharesOf(seconds);
    return fmt::format(
        R"({{"requests": {}, "failed": {}, "seconds": {:.4f}, "requests_per_s": {:.3f}, )"
        R"("tokens_per_s": {:.1f}, "p50_ms": {:.3f}, "p90_ms": {:.3f}, "p99_ms": {:.3f}, )"
        R"("busy": {:.4f}, "useful": {:.4f}, "mean_rows": {:.2f}}})",
        latencies_.size(), failed_, seconds, static_cast<double>(latencies_.size()) / seconds,
        static_cast<double>(tokens_) / seconds, quantile(0.5), quantile(0.9), quantile(0.99),
        shares.busy, shares.useful, shares.mean_rows);
  }

  // While measured: of the workers' time, that in which cells ran; of the rows, those that somebody
  // asked for; rows of a task, the mean over the tasks' time.
  struct Shares {
    double busy = 0, useful = 0, mean_rows = 0;
  };
  Shares SharesOf(double seconds) const {
    double ns = 0, rows = 0, rows_ns = 0;
    for (const auto& [size, count] : after_.batches) {
      ModelStatistics::Count earlier;
      if (const auto at = before_.batches.find(size); at != before_.batches.end()) {
        earlier = at->second;
      }
      const auto spent = static_cast<double>(count.ns - earlier.ns);
      ns += spent;
      rows += size * static_cast<double>(count.count - earlier.count);
      rows_ns += size * spent;
    }
    const auto padded = static_cast<double>(after_.padded_rows - before_.padded_rows);
    return {.busy = ns * 1e-9 / seconds / engine_.workers(),
            .useful = rows > 0 ? rows / (rows + padded) : 0,
            .mean_rows = ns > 0 ? rows_ns / ns : 0};
  }
  ModelStatistics Statistics() const {
    const auto statistics = engine_.Statistics("model");
    return statistics.ok() && !statistics->empty() ? (*statistics)[0] : ModelStatistics{};
  }

  Engine& engine_;
  ModelStatistics before_, after_;
  std::vector<Tensor> inputs_;
  std::atomic<size_t> next_{0};
  std::atomic<int> under_way_{0};
  std::mutex mutex_;
  std::condition_variable told_;
  std::vector<double> latencies_;
  int64_t tokens_ = 0;
  int failed_ = 0;
  int to_warm_up_ = 0;  // answers until it counts
  SteadyClock::duration window_{};
  std::optional<SteadyClock::time_point> end_;  // of what is measured
  bool over_ = false;
};

Status Serve(int argc, char** argv) {
  if (argc != 7) {
    return InvalidArgument("usage: {} MODEL.onnx POLICY MAX_ROWS WORKERS LENGTHS.txt VOCABULARY",
                           argv[0]);
  }
  EngineOptions options;
  options.workers = std::atoi(argv[4]);
  options.max_requests = 1 << 16;
  CHAIRLIFT_ASSIGN_OR_RETURN(auto engine, Engine::Create(options));
  ModelConfig config;
  config.policy = argv[2];
  config.max_batch_size = std::atoi(argv[3]);
  config.max_queue_size = 1 << 16;
  CHAIRLIFT_RETURN_IF_ERROR(engine->LoadModel("model", argv[1], config));
  std::vector<int64_t> lengths;
  std::ifstream file(argv[5]);
  for (int64_t length = 0; file >> length;) lengths.push_back(length);
  if (lengths.empty()) return InvalidArgument("{} holds no lengths", argv[5]);
  Load load(*engine, lengths, std::atoi(argv[6]));
  std::cout << "ready" << std::endl;

  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb;
    double first = 0, second = 0;
    unsigned seed = 1;
    words >> verb >> first >> second >> seed;
    std::cout << (verb == "closed" ? load.Closed(static_cast<int>(first), second)
                                   : load.Open(first, second, seed))
              << std::endl;
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
