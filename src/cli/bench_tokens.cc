#include "cli/bench_tokens.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "cli/flags.h"
#include "cli/load/idle.h"
#include "cli/load/schedule.h"
#include "cli/load/token_load.h"
#include "cli/terminal.h"

namespace chairlift {
namespace {

using std::chrono::nanoseconds;

nanoseconds Nanoseconds(double seconds) {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(seconds));
}

nlohmann::json ToJson(const Quantiles& of) {
  return {{"mean", of.mean}, {"p50", of.p50}, {"p90", of.p90}, {"p99", of.p99}, {"max", of.max}};
}

nlohmann::json ToJson(const TokenReport& report) {
  const LoadReport& requests = report.requests;
  return {{"requests", requests.scheduled},
          {"succeeded", requests.succeeded},
          {"failures", requests.failures},
          {"requests_per_s", requests.achieved_rate},
          {"prompt_tokens_per_s", report.prompt_tokens_per_s},
          {"output_tokens_per_s", report.output_tokens_per_s},
          {"first_token_ms", ToJson(report.first_ms)},
          {"between_tokens_ms", ToJson(report.between_ms)},
          {"latency_ms",
           {{"mean", requests.mean_ms},
            {"p50", requests.p50_ms},
            {"p90", requests.p90_ms},
            {"p99", requests.p99_ms},
            {"max", requests.max_ms}}},
          {"valid", requests.invalid.empty()},
          {"invalid", requests.invalid}};
}

// One load after the other.
class TokenBench {
 public:
  TokenBench(TokenTarget& target, const TokenBenchOptions& options, const LoadLimits& limits)
      : target_(target), options_(options), limits_(limits) {}

  Status Run() {
    CHAIRLIFT_ASSIGN_OR_RETURN(prompts_, LengthHistogram::From(options_.prompt_lengths));
    CHAIRLIFT_ASSIGN_OR_RETURN(outputs_, LengthHistogram::From(options_.output_lengths));
    {
      StatusLine line;
      line.Show("trying a request");
      CHAIRLIFT_RETURN_IF_ERROR(TryOne());
      line.Show("planning batches");
      WaitUntilIdle();
    }
    Announce();
    std::vector<std::pair<std::string, TokenReport>> reports;
    if (options_.clients > 0) {
      const std::string label = Counted(options_.clients, "client");
      reports.emplace_back(label, Closed());
    }
    for (const double rate : limits_.rates) {
      CHAIRLIFT_ASSIGN_OR_RETURN(TokenReport report, Open(rate));
      reports.emplace_back(HumanNumber(rate) + "/s", std::move(report));
    }
    Print(reports);
    CHAIRLIFT_RETURN_IF_ERROR(Write(reports));
    for (const auto& [label, report] : reports) {
      if (report.requests.succeeded > 0) return absl::OkStatus();
    }
    return Unavailable("no request succeeded");
  }

 private:
  TokenCounts Draw() { return {prompts_.Sample(random_), outputs_.Sample(random_)}; }
  LoadTestOptions Patience(std::function<void(int64_t)> progress) const {
    return {.patience = Nanoseconds(limits_.timeout_seconds), .progress = std::move(progress)};
  }

  Status TryOne() {
    const TokenCounts counts = Draw();
    const std::vector<int64_t> prompt(static_cast<size_t>(counts.prompt), 1);
    auto answered = std::make_shared<std::promise<Status>>();
    std::future<Status> answer = answered->get_future();
    target_.Stream(
        prompt, counts.output, [](int64_t) {},
        [answered](Status status) { answered->set_value(std::move(status)); });
    if (answer.wait_for(Nanoseconds(limits_.timeout_seconds)) == std::future_status::ready) {
      return answer.get();
    }
    return DeadlineExceeded("{} did not answer a first request within {:g} s", target_.name(),
                            limits_.timeout_seconds);
  }

  void Announce() const {
    std::vector<std::string> loads;
    if (options_.clients > 0) loads.push_back(Counted(options_.clients, "request") + " at a time");
    if (!limits_.rates.empty()) {
      std::vector<std::string> rates;
      for (const double rate : limits_.rates) rates.push_back(HumanNumber(rate) + "/s");
      loads.push_back(fmt::format("Poisson arrivals at {}", fmt::join(rates, ", ")));
    }
    PrintText(
        "{}: {:g} s{}, {}\n  random prompts of {} tokens (mean {:.4g}); answers of {} (mean "
        "{:.4g}){}\n",
        target_.name(), limits_.seconds, limits_.rates.size() > 1 ? " each" : "",
        fmt::join(loads, ", then "), options_.prompt_lengths, prompts_.mean(),
        options_.output_lengths, outputs_.mean(),
        options_.beams > 1 ? fmt::format("; {} beams", options_.beams) : "");
    std::fflush(stdout);
  }

  TokenReport Closed() {
    const nanoseconds from = Nanoseconds(limits_.warmup_seconds);
    const nanoseconds to = Nanoseconds(limits_.warmup_seconds + limits_.seconds);
    ProgressBar bar("generating", to / std::chrono::milliseconds(1));
    const std::vector<TokenSample> samples =
        KeepTokenLoad(target_, {.clients = options_.clients,
                                .seconds = limits_.warmup_seconds + limits_.seconds,
                                .seed = limits_.seed,
                                .next = [this] { return Draw(); },
                                .options = Patience([&bar](int64_t ms) { bar.Set(ms); })});
    return SummarizeTokens(samples, from, to);
  }

  StatusOr<TokenReport> Open(double rate) {
    ScheduleOptions schedule{.rate = rate,
                             .seconds = limits_.warmup_seconds,
                             .gaps_ms = {},
                             .lengths = &prompts_,
                             .outputs = &outputs_,
                             .seed = limits_.seed + 1};
    if (const auto first = MakeSchedule(schedule); first.ok()) {
      PutTokenLoad(target_, *first, schedule.seed, Patience(nullptr));
    }
    schedule.seconds = limits_.seconds;
    schedule.seed = limits_.seed;
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Arrival> arrivals, MakeSchedule(schedule));
    ProgressBar bar("generating", static_cast<int64_t>(arrivals.size()));
    const std::vector<TokenSample> samples = PutTokenLoad(
        target_, arrivals, schedule.seed, Patience([&bar](int64_t sent) { bar.Set(sent); }));
    nanoseconds last = Nanoseconds(limits_.seconds);
    for (const TokenSample& sample : samples) last = std::max(last, sample.done + nanoseconds(1));
    return SummarizeTokens(samples, nanoseconds(0), last);
  }

  using Reports = std::vector<std::pair<std::string, TokenReport>>;

  static void Print(const Reports& reports) {
    Table rates({"load", "requests/s", "input tokens/s", "output tokens/s"});
    Table times({"load", "ms", "mean", "p50", "p90", "p99", "max"});
    bool any = false;
    for (const auto& [label, report] : reports) {
      const LoadReport& requests = report.requests;
      if (requests.succeeded == 0) continue;
      any = true;
      rates.Add({label, HumanNumber(requests.achieved_rate),
                 HumanNumber(report.prompt_tokens_per_s), HumanNumber(report.output_tokens_per_s)});
      const auto row = [&, &label = label](const char* what, const Quantiles& of) {
        times.Add({label, what, HumanNumber(of.mean), HumanNumber(of.p50), HumanNumber(of.p90),
                   HumanNumber(of.p99), HumanNumber(of.max)});
      };
      row("first token", report.first_ms);
      row("between tokens", report.between_ms);
      row("whole answer",
          {requests.mean_ms, requests.p50_ms, requests.p90_ms, requests.p99_ms, requests.max_ms});
    }
    if (any) PrintText("{}{}", rates.ToString(), times.ToString());
    for (const auto& [label, report] : reports) {
      const std::vector<std::string>& invalid = report.requests.invalid;
      PrintText("{}{}\n", reports.size() == 1 ? "" : label + ": ",
                invalid.empty() ? "VALID" : "INVALID");
      for (const std::string& reason : invalid) PrintText("  {}\n", reason);
    }
  }

  Status Write(const Reports& reports) const {
    if (limits_.json.empty()) return absl::OkStatus();
    nlohmann::json all = {{"target", target_.name()},
                          {"seconds", limits_.seconds},
                          {"seed", limits_.seed},
                          {"prompt_lengths", options_.prompt_lengths},
                          {"output_lengths", options_.output_lengths},
                          {"num_beams", options_.beams},
                          {"loads", nlohmann::json::array()}};
    for (const auto& [label, report] : reports) {
      all["loads"].push_back(ToJson(report));
      all["loads"].back()["load"] = label;
    }
    std::ofstream file(limits_.json);
    file << all.dump(1) << "\n";
    return file.flush() ? absl::OkStatus() : CannotWrite(limits_.json);
  }

  TokenTarget& target_;
  const TokenBenchOptions& options_;
  const LoadLimits& limits_;
  LengthHistogram prompts_, outputs_;
  std::mt19937_64 random_{limits_.seed};
};

}  // namespace

void AddTokenBench(CLI::App& parser, TokenBenchOptions* options) {
  CLI::Option* const prompts = parser
                                   .add_option("--prompt-lengths", options->prompt_lengths,
                                               "For models that generate: tokens of a prompt, as a "
                                               "number, a range (32-512) or a JSON\n"
                                               "histogram; with an encoder, tokens of a source")
                                   ->type_name("N|N-N|FILE");
  CLI::Option* const outputs = parser
                                   .add_option("--output-lengths", options->output_lengths,
                                               "With --prompt-lengths: tokens of an answer, as a "
                                               "number, a range or a JSON histogram;\n"
                                               "end tokens are ignored")
                                   ->type_name("N|N-N|FILE");
  CLI::Option* const clients =
      AddNumber(parser, "--concurrency", &options->clients, 1, 65536, "N",
                "With --prompt-lengths: keep N requests running, instead of a rate");
  AddNumber(parser, "--num-beams", &options->beams, 1, 32, "N",
            "With --prompt-lengths: beams of each request; answers are not streamed")
      ->needs(prompts);
  prompts->needs(outputs);
  outputs->needs(prompts);
  clients->needs(prompts);
  for (const char* flag :
       {"--peak", "--tune-delay", "--requests", "--request-intervals", "--length-histogram",
        "--input", "--rows-in-turn", "--shape", "--batch-size", "--length", "--trace"}) {
    prompts->excludes(flag);
  }
  clients->excludes("--rate");
}

Status BenchTokens(TokenTarget& target, const TokenBenchOptions& options,
                   const LoadLimits& limits) {
  return TokenBench(target, options, limits).Run();
}

}  // namespace chairlift
