#include "cli/bench_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "chairlift/engine.h"
#include "cli/bench_requests.h"
#include "cli/bench_tokens.h"
#include "cli/flags.h"
#include "cli/inputs.h"
#include "cli/load/generator.h"
#include "cli/load/idle.h"
#include "cli/load/peak.h"
#include "cli/load/schedule.h"
#include "cli/load/target.h"
#include "cli/load_bar.h"
#include "cli/model_path.h"
#include "cli/terminal.h"
#include "engine/programs/serving_plan.h"

namespace chairlift {
namespace {

nlohmann::json ToJson(const LoadReport& report) {
  return {{"requests", report.scheduled},
          {"succeeded", report.succeeded},
          {"failures", report.failures},
          {"scheduled_rate", report.scheduled_rate},
          {"achieved_rate", report.achieved_rate},
          {"latency_ms",
           {{"mean", report.mean_ms},
            {"p50", report.p50_ms},
            {"p90", report.p90_ms},
            {"p99", report.p99_ms},
            {"max", report.max_ms}}},
          {"generator_lag_p99_ms", report.generator_lag_p99_ms},
          {"valid", report.invalid.empty()},
          {"invalid", report.invalid}};
}

nlohmann::json ToJson(std::span<const LoadReport> reports) {
  nlohmann::json all = nlohmann::json::array();
  for (const LoadReport& report : reports) all.push_back(ToJson(report));
  return all;
}

// Fields common to all loads.
nlohmann::json HeadOf(const BenchFlags& flags, const std::string& target) {
  return {{"target", target},
          {"seconds", flags.schedule.seconds},
          {"seed", flags.schedule.seed},
          {"arrivals", flags.gaps.empty() ? "poisson" : flags.gaps},
          {"lengths", flags.lengths},
          {"policy", flags.url.empty() ? flags.config.policy : ""}};
}

// Prints what will be sent; `count` in total, 0 if unknown.
void Announce(const std::string& target, const std::string& requests, size_t count,
              const BenchFlags& flags) {
  std::string arrivals = "Poisson arrivals";
  if (!flags.gaps.empty()) arrivals = "intervals from " + flags.gaps;
  std::vector<std::string> rates;
  for (const double rate : flags.rates) {
    if (rate > 0) rates.push_back(HumanNumber(rate) + "/s");
  }
  if (!rates.empty()) arrivals += fmt::format(" at {}", fmt::join(rates, ", "));
  const std::string how_many =
      count == 0 ? "" : Counted(static_cast<int64_t>(count), "request") + " in ";
  PrintText("{}: {}{:g} s{}, {}\n  {}\n", target, how_many, flags.schedule.seconds,
            flags.rates.size() > 1 || count == 0 ? " each" : "", arrivals, requests);
  std::fflush(stdout);
}

// One row per load; if there are several, reasons for invalid ones name their rate.
void Print(std::span<const LoadReport> reports) {
  Table table({"scheduled/s", "achieved/s", "mean ms", "p50 ms", "p90 ms", "p99 ms", "max ms"});
  bool any = false;
  for (const LoadReport& report : reports) {
    if (report.succeeded == 0) continue;
    any = true;
    table.Add({HumanNumber(report.scheduled_rate), HumanNumber(report.achieved_rate),
               HumanNumber(report.mean_ms), HumanNumber(report.p50_ms), HumanNumber(report.p90_ms),
               HumanNumber(report.p99_ms), HumanNumber(report.max_ms)});
  }
  if (any) {
    PrintText(
        "{}scheduled/s: the arrivals as drawn, which differ by chance from the rate asked for\n",
        table.ToString());
  }
  for (const LoadReport& report : reports) {
    const std::string at =
        reports.size() == 1 ? "" : fmt::format("{}/s: ", HumanNumber(report.scheduled_rate));
    PrintText("{}{}\n", at, report.invalid.empty() ? "VALID" : "INVALID");
    for (const std::string& reason : report.invalid) PrintText("  {}\n", reason);
  }
}

Status WriteTrace(Engine& engine, const std::string& path) {
  const Trace trace = engine.StopTrace();
  std::ofstream file(path);
  file << trace.json;
  if (!file.flush()) return CannotWrite(path);
  PrintText("{} tasks in {}; open it in ui.perfetto.dev or chrome://tracing\n", trace.tasks, path);
  if (trace.dropped > 0) {
    PrintText("  the trace is full: {} later tasks are missing; use fewer --seconds\n",
              trace.dropped);
  }
  return absl::OkStatus();
}

// A model's own configuration, overridden by the command line.
ModelConfig Over(ModelConfig own, const ModelConfig& flags) {
  if (!flags.policy.empty()) {
    own.policy = flags.policy;
    own.drop_unused = flags.policy == "none";  // for comparison
    own.max_batch_tokens = 0;                  // the other policy may not support it
    own.queue_delay_us = own.latency_objective_us = own.join_window_us = 0;
    own.time_slice_us.reset();
    own.buffer_pairs = ModelConfig().buffer_pairs;
    if (flags.policy != "window") own.preferred_batch_sizes.clear();
    if (!MayServe(flags.policy, GraphForm::kPadded) &&
        !MayServe(flags.policy, GraphForm::kRagged)) {
      own.padding_mask.clear();
    }
    if (!MayServe(flags.policy, GraphForm::kStages)) {
      own.stages = 0;
      own.stages_after.clear();
      own.exits.clear();
      own.stage_plugin = {};
    }
  }
  if (flags.max_batch_size != 0) own.max_batch_size = flags.max_batch_size;
  if (flags.max_batch_tokens != 0) own.max_batch_tokens = flags.max_batch_tokens;
  if (flags.queue_delay_us != 0) own.queue_delay_us = flags.queue_delay_us;
  return own;
}

using Arrivals = std::vector<Arrival>;

// The duration of a load at this rate; 0: the gaps of a file.
double SecondsAt(const BenchFlags& flags, double rate, int least_requests) {
  return rate > 0 ? std::max(flags.schedule.seconds, least_requests / rate)
                  : flags.schedule.seconds;
}

// The loads of each rate.
StatusOr<std::vector<Arrivals>> LoadsOf(const BenchFlags& flags) {
  std::vector<Arrivals> loads;
  for (const double rate : flags.rates) {
    ScheduleOptions schedule = flags.schedule;
    schedule.rate = rate;
    schedule.seconds = SecondsAt(flags, rate, flags.requests);
    CHAIRLIFT_ASSIGN_OR_RETURN(loads.emplace_back(), MakeSchedule(schedule));
  }
  return loads;
}

// A model or a server, and the loads to put on it.
class BenchRun {
 public:
  explicit BenchRun(BenchFlags flags) : flags_(std::move(flags)) {}

  Status RunTokens() {
    std::unique_ptr<TokenTarget> target;
    if (flags_.url.empty()) {
      CHAIRLIFT_RETURN_IF_ERROR(Load());
      CHAIRLIFT_ASSIGN_OR_RETURN(target,
                                 MakeEngineTokenTarget(*engine_, model_.name, flags_.tokens.beams));
    } else {
      CHAIRLIFT_ASSIGN_OR_RETURN(
          target, MakeHttpTokenTarget(flags_.url, flags_.model, flags_.tokens.beams,
                                      std::max(flags_.connections, flags_.tokens.clients)));
    }
    return BenchTokens(*target, flags_.tokens,
                       {.rates = flags_.tokens.clients > 0 ? std::vector<double>() : flags_.rates,
                        .seconds = flags_.schedule.seconds,
                        .seed = flags_.schedule.seed,
                        .warmup_seconds = flags_.warmup_seconds,
                        .timeout_seconds = flags_.timeout_seconds,
                        .json = flags_.json});
  }

  // `loads`: by flags.rates.
  Status Run(const std::vector<Arrivals>& loads) {
    CHAIRLIFT_RETURN_IF_ERROR(Open());
    BenchRequests requests(*target_, flags_);
    requests_ = &requests;
    {
      StatusLine line;
      line.Show("trying a request");
      const bool any = !loads.empty() && !loads[0].empty();
      CHAIRLIFT_RETURN_IF_ERROR(requests.Begin(any ? loads[0][0].length : LengthOfOne()));
    }
    size_t count = 0;
    for (const Arrivals& arrivals : loads) {
      for (const Arrival& arrival : arrivals)
        CHAIRLIFT_RETURN_IF_ERROR(requests.Add(arrival.length));
      count += arrivals.size();
    }
    Announce(target_->name(), requests.Describe(), count, flags_);
    if (engine_ != nullptr) {
      StatusLine line;
      line.Show("planning batches");
      WaitUntilIdle();
    }
    if (flags_.tune_delay) return TuneDelay();
    if (flags_.peak) return Peak();
    return Measure(loads);
  }

 private:
  Status Load() {
    flags_.engine.on_load = LoadBar();
    CHAIRLIFT_ASSIGN_OR_RETURN(engine_, Engine::Create(flags_.engine));
    CHAIRLIFT_ASSIGN_OR_RETURN(model_, FindModel(flags_.model));
    flags_.config = Over(model_.config, flags_.config);
    return engine_->LoadModel(model_.name, model_.path, flags_.config);
  }

  // Loads the model, or connects to the server.
  Status Open() {
    if (!flags_.url.empty()) {
      CHAIRLIFT_ASSIGN_OR_RETURN(target_,
                                 MakeHttpTarget(flags_.url, flags_.model, flags_.connections));
    } else {
      CHAIRLIFT_RETURN_IF_ERROR(Load());
      CHAIRLIFT_ASSIGN_OR_RETURN(target_, MakeEngineTarget(*engine_, model_.name));
    }
    if (!flags_.lengths.empty() && !VariesInLength(target_->inputs())) {
      return InvalidArgument(
          "--length-histogram: no input of {} varies in length; leave --length-histogram out",
          target_->name());
    }
    return absl::OkStatus();
  }

  int64_t LengthOfOne() const {
    std::mt19937_64 random(flags_.schedule.seed);
    return flags_.schedule.lengths == nullptr ? 0 : flags_.schedule.lengths->Sample(random);
  }

  StatusOr<std::vector<LoadSample>> Send(const char* what, const Arrivals& arrivals) {
    for (const Arrival& arrival : arrivals)
      CHAIRLIFT_RETURN_IF_ERROR(requests_->Add(arrival.length));
    ProgressBar bar(what, static_cast<int64_t>(arrivals.size()));
    return PutLoad(*target_, arrivals, std::ref(*requests_),
                   {.patience = std::chrono::duration_cast<std::chrono::nanoseconds>(
                        std::chrono::duration<double>(flags_.timeout_seconds)),
                    .progress = [&bar](int64_t sent) { bar.Set(sent); }});
  }

  // The first batch of a size waits for its plan. Bursts of a few requests make plans for the most
  // common sizes, as far as the warm-up time allows.
  Status WarmUpBatches() {
    constexpr size_t kMostInBurst = 8;
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::duration<double>(flags_.warmup_seconds);
    for (size_t size = 2; size <= kMostInBurst; ++size) {
      if (std::chrono::steady_clock::now() >= until) break;
      const Arrivals burst(size, Arrival{.length = LengthOfOne()});
      CHAIRLIFT_RETURN_IF_ERROR(Send("warming up", burst).status());
    }
    return absl::OkStatus();
  }

  Status WarmUp(double rate) {
    ScheduleOptions schedule = flags_.schedule;
    schedule.rate = rate;
    schedule.seconds = flags_.warmup_seconds;
    schedule.seed += 1;
    const auto arrivals = MakeSchedule(schedule);
    return arrivals.ok() ? Send("warming up", *arrivals).status() : absl::OkStatus();
  }

  Status Write(const nlohmann::json& figures) const {
    if (flags_.json.empty()) return absl::OkStatus();
    nlohmann::json all = HeadOf(flags_, target_->name());
    all.update(figures);
    std::ofstream file(flags_.json);
    file << all.dump(1) << "\n";
    return file.flush() ? absl::OkStatus() : CannotWrite(flags_.json);
  }

  // One load after the other.
  Status Measure(const std::vector<Arrivals>& loads) {
    std::vector<LoadReport> reports;
    if (!flags_.trace.empty()) engine_->StartTrace({.nodes = flags_.trace_nodes});
    int64_t scheduled = 0, succeeded = 0;
    CHAIRLIFT_RETURN_IF_ERROR(WarmUpBatches());
    for (size_t i = 0; i < loads.size(); ++i) {
      CHAIRLIFT_RETURN_IF_ERROR(WarmUp(flags_.rates[i]));
      // Drops what was recorded during the warm-up.
      if (!flags_.trace.empty() && i == 0) engine_->StartTrace({.nodes = flags_.trace_nodes});
      CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<LoadSample> samples, Send("sending", loads[i]));
      reports.push_back(Summarize(samples, SecondsAt(flags_, flags_.rates[i], flags_.requests)));
      scheduled += reports.back().scheduled;
      succeeded += reports.back().succeeded;
    }
    Print(reports);
    if (!flags_.trace.empty()) CHAIRLIFT_RETURN_IF_ERROR(WriteTrace(*engine_, flags_.trace));
    CHAIRLIFT_RETURN_IF_ERROR(Write(
        reports.size() == 1 ? ToJson(reports[0]) : nlohmann::json{{"loads", ToJson(reports)}}));
    if (succeeded == 0) return Unavailable("none of {} succeeded", Counted(scheduled, "request"));
    return absl::OkStatus();
  }

  // The highest rate that meets the objective; appends the loads that were tried.
  StatusOr<double> FindPeakRate(std::vector<LoadReport>& tried) {
    // The start value: the rate at which a burst is answered.
    constexpr int kBurst = 32;
    Arrivals burst(kBurst, Arrival{.length = LengthOfOne()});
    CHAIRLIFT_RETURN_IF_ERROR(Send("warming up", burst).status());
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<LoadSample> all, Send("warming up", burst));
    const double start = Summarize(all, 1e-9).achieved_rate;
    if (!(start > 0)) return Unavailable("none of {} requests was answered", kBurst);
    return FindPeak({.start = 0.75 * start}, [&](double rate) -> StatusOr<bool> {
      constexpr int kRequests = 120;  // minimum for the percentile
      ScheduleOptions schedule = flags_.schedule;
      schedule.rate = rate;
      schedule.seconds = SecondsAt(flags_, rate, flags_.requests > 0 ? flags_.requests : kRequests);
      CHAIRLIFT_ASSIGN_OR_RETURN(const Arrivals arrivals, MakeSchedule(schedule));
      CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<LoadSample> samples,
                                 Send("searching for the peak", arrivals));
      const LoadReport& report = tried.emplace_back(Summarize(samples, schedule.seconds));
      return report.failures.empty() && report.kept_up && report.p99_ms <= flags_.objective_ms;
    });
  }

  Status Peak() {
    std::vector<LoadReport> tried;
    CHAIRLIFT_ASSIGN_OR_RETURN(const double peak, FindPeakRate(tried));
    std::vector<LoadReport> sorted = tried;
    std::sort(sorted.begin(), sorted.end(), [](const LoadReport& a, const LoadReport& b) {
      return a.scheduled_rate < b.scheduled_rate;
    });
    Print(sorted);
    PrintText("{}\n", peak > 0
                          ? fmt::format("peak: {:.4g} requests per second with p99 within {:g} ms",
                                        peak, flags_.objective_ms)
                          : fmt::format("p99 exceeded {:g} ms at every rate; the lowest was "
                                        "{:.3g} requests per second",
                                        flags_.objective_ms, sorted[0].scheduled_rate));
    // A generator that is late makes latencies longer, as they count from the scheduled times.
    const auto late = std::count_if(sorted.begin(), sorted.end(), [&](const LoadReport& report) {
      return report.sent_late && report.scheduled_rate > peak;
    });
    if (late > 0) {
      PrintText("  the peak may be higher: at {} above it, the load generator could not keep up\n",
                Counted(late, "rate"));
    }
    return Write({{"peak", peak}, {"objective_ms", flags_.objective_ms}, {"tried", ToJson(tried)}});
  }

  // Finds the peak for several queue delays, and selects the smallest delay whose peak is within 2%
  // of the best.
  Status TuneDelay() {
    constexpr double kShares[] = {0, 0.01, 0.05, 0.25};  // of the objective
    constexpr double kAsGood = 0.98;
    Table table({"queue delay ms", "peak/s"});
    nlohmann::json delays = nlohmann::json::array();
    std::vector<std::pair<int64_t, double>> peaks;
    for (const double share : kShares) {
      flags_.config.queue_delay_us = std::llround(share * flags_.objective_ms * 1e3);
      CHAIRLIFT_RETURN_IF_ERROR(engine_->LoadModel(model_.name, model_.path, flags_.config));
      WaitUntilIdle();
      std::vector<LoadReport> tried;
      CHAIRLIFT_ASSIGN_OR_RETURN(const double peak, FindPeakRate(tried));
      peaks.emplace_back(flags_.config.queue_delay_us, peak);
      table.Add({fmt::format("{:g}", static_cast<double>(peaks.back().first) * 1e-3),
                 fmt::format("{:.4g}", peak)});
      delays.push_back({{"queue_delay_us", peaks.back().first}, {"peak", peak}});
    }
    double best = 0;
    for (const auto& [delay, peak] : peaks) best = std::max(best, peak);
    const auto tuned = std::find_if(peaks.begin(), peaks.end(), [&](const auto& delay) {
      return delay.second >= kAsGood * best;
    });
    PrintText("{}tuned for the peak with p99 within {:g} ms: queue_delay_us: {}\n",
              table.ToString(), flags_.objective_ms, tuned->first);
    return Write({{"queue_delay_us", tuned->first},
                  {"peak", tuned->second},
                  {"objective_ms", flags_.objective_ms},
                  {"delays", delays}});
  }

  BenchFlags flags_;
  std::unique_ptr<Engine> engine_;  // null for a server
  ModelPath model_;
  std::unique_ptr<LoadTarget> target_;
  BenchRequests* requests_ = nullptr;
};

}  // namespace

Status RunBench(BenchFlags flags) {
  if (!flags.trace.empty() && !flags.url.empty()) {
    return Usage(InvalidArgument("--trace needs workers in process; leave out --url"));
  }
  if (!flags.url.empty() && flags.model.find('/') != std::string::npos) {
    std::filesystem::path path(flags.model);
    if (!path.has_filename()) path = path.parent_path();  // it ended in a slash
    return Usage(InvalidArgument(
        "with --url, MODEL is the name of a served model: try '{}'",
        path.extension() == ".onnx" ? path.stem().string() : path.filename().string()));
  }
  flags.input_shapes.length = flags.length.value_or(flags.input_shapes.length);
  if (const std::string why = WhyNoPath(flags.model); flags.url.empty() && !why.empty()) {
    return Usage(NotFound("{} (with --url, it would be the name of a served model)", why));
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckWritable(flags.json));
  CHAIRLIFT_RETURN_IF_ERROR(CheckWritable(flags.trace));
  if (!flags.gaps.empty()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(flags.schedule.gaps_ms, ReadGaps(flags.gaps));
    if (flags.rates.empty()) flags.rates = {0};  // unscaled
  }
  LengthHistogram lengths;
  if (!flags.lengths.empty()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(lengths, LengthHistogram::Read(flags.lengths));
    flags.schedule.lengths = &lengths;
  }
  const bool searched = flags.peak || flags.tune_delay;
  if (!searched && flags.rates.empty()) flags.rates = {flags.schedule.rate};
  if (flags.tokens.asked()) return BenchRun(std::move(flags)).RunTokens();
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Arrivals> loads, LoadsOf(flags));
  BenchRun run(std::move(flags));
  return run.Run(loads);
}

}  // namespace chairlift
