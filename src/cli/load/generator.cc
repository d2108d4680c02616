#include "cli/load/generator.h"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/status.h"
#include "cli/terminal.h"

namespace chairlift {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int64_t kMinRequests = 100;
constexpr double kMinAchieved = 0.95;  // minimum, relative to the scheduled rate
// Maximum generator lag at p99, relative to the median latency.
constexpr double kMaxLagOfLatency = 0.1;
constexpr double kMaxLagMs = 1.0;  // always allowed

// Shared with the answers.
struct Load {
  explicit Load(size_t requests) : samples(requests), answered(requests), open(requests) {}

  std::mutex mutex;
  std::condition_variable all_done;
  std::vector<LoadSample> samples;
  std::vector<bool> answered;
  size_t open;
};

std::string WithoutDigits(std::string text) {
  std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
  return text;
}

// During its lifetime, the calling thread has priority over the engine's workers if the system
// permits that: real clients do not wait for the server's cores.
class AheadOfWorkers {
 public:
  AheadOfWorkers() : before_(sched_getscheduler(0)) {
    sched_getparam(0, &parameters_);
    const sched_param first{.sched_priority = sched_get_priority_min(SCHED_RR)};
    // Threads that it creates have normal priority.
    raised_ = sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &first) == 0;
  }
  ~AheadOfWorkers() {
    if (raised_) sched_setscheduler(0, before_, &parameters_);
  }
  AheadOfWorkers(const AheadOfWorkers&) = delete;
  AheadOfWorkers& operator=(const AheadOfWorkers&) = delete;

 private:
  const int before_;
  sched_param parameters_{};
  bool raised_ = false;
};

}  // namespace

double Percentile(std::span<const double> sorted, double p) {
  if (sorted.empty()) return 0;
  const auto rank = static_cast<size_t>(p * static_cast<double>(sorted.size()) + 0.9999999);
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

LoadReport Summarize(std::span<const LoadSample> samples, double seconds) {
  LoadReport report;
  report.scheduled = static_cast<int64_t>(samples.size());
  report.scheduled_rate = static_cast<double>(samples.size()) / seconds;
  std::vector<double> latencies, lags;
  std::chrono::nanoseconds last{0};
  std::map<std::string, std::string> first;  // by message without its numbers
  for (const LoadSample& sample : samples) {
    lags.push_back(Ms(sample.sent - sample.scheduled));
    if (!sample.status.ok()) {
      const std::string message = Message(sample.status);
      ++report.failures[first.try_emplace(WithoutDigits(message), message).first->second];
      continue;
    }
    ++report.succeeded;
    latencies.push_back(Ms(sample.done - sample.scheduled));
    last = std::max(last, sample.done);
  }
  std::sort(latencies.begin(), latencies.end());
  std::sort(lags.begin(), lags.end());
  for (const double ms : latencies) report.mean_ms += ms / static_cast<double>(latencies.size());
  report.p50_ms = Percentile(latencies, 0.5);
  report.p90_ms = Percentile(latencies, 0.9);
  report.p99_ms = Percentile(latencies, 0.99);
  report.max_ms = latencies.empty() ? 0 : latencies.back();
  report.generator_lag_p99_ms = Percentile(lags, 0.99);
  const double span = std::max(seconds, Ms(last) * 1e-3);
  report.achieved_rate = static_cast<double>(report.succeeded) / span;

  if (report.scheduled < kMinRequests) {
    report.invalid.push_back(fmt::format("only {} requests: percentiles need at least {}",
                                         report.scheduled, kMinRequests));
  }
  for (const auto& [message, count] : report.failures) {
    report.invalid.push_back(
        fmt::format("{} of {} requests failed: {}", HumanNumber(static_cast<double>(count)),
                    HumanNumber(static_cast<double>(report.scheduled)), message));
  }
  report.kept_up = report.achieved_rate >= kMinAchieved * report.scheduled_rate;
  if (report.failures.empty() && !report.kept_up) {
    report.invalid.push_back(fmt::format(
        "it did not keep up: {:.1f} of {:.1f} requests a second, so latency grows with the "
        "duration",
        report.achieved_rate, report.scheduled_rate));
  }
  report.sent_late =
      report.generator_lag_p99_ms > std::max(kMaxLagMs, kMaxLagOfLatency * report.p50_ms);
  if (report.sent_late) {
    report.invalid.push_back(
        fmt::format("the load generator could not keep up: at p99 requests left {:.2f} "
                    "ms late; free a core, or lower --rate or --workers",
                    report.generator_lag_p99_ms));
  }
  return report;
}

void SendOnTime(std::span<const Arrival> schedule, SteadyClock::time_point start,
                const std::function<void(int64_t)>& progress,
                const std::function<void(size_t)>& send) {
  const auto report = [&](size_t sent) {
    if (progress != nullptr) progress(static_cast<int64_t>(sent));
  };
  const AheadOfWorkers ahead;
  for (size_t i = 0; i < schedule.size(); ++i) {
    const auto due = start + schedule[i].at;
    while (due - SteadyClock::now() > 2 * kProgressEvery) {
      std::this_thread::sleep_for(kProgressEvery);
      report(i);
    }
    std::this_thread::sleep_until(due);
    send(i);
    report(i + 1);
  }
}

std::vector<LoadSample> PutLoad(LoadTarget& target, std::span<const Arrival> schedule,
                                const std::function<size_t(const Arrival&)>& prepared,
                                const LoadTestOptions& options) {
  // Shared, so that it outlives late answers.
  const auto load = std::make_shared<Load>(schedule.size());
  const auto start = SteadyClock::now();
  SendOnTime(schedule, start, options.progress, [&](size_t i) {
    load->samples[i].scheduled = schedule[i].at;
    load->samples[i].sent = SteadyClock::now() - start;
    target.Send(prepared(schedule[i]), [load, start, i](Status status) {
      const auto done = SteadyClock::now() - start;
      const std::lock_guard<std::mutex> lock(load->mutex);
      load->samples[i].done = done;
      load->samples[i].status = std::move(status);
      load->answered[i] = true;
      if (--load->open == 0) load->all_done.notify_one();
    });
  });
  const auto deadline = SteadyClock::now() + options.patience;
  std::unique_lock<std::mutex> lock(load->mutex);
  if (load->all_done.wait_until(lock, deadline, [&] { return load->open == 0; })) {
    return std::move(load->samples);
  }
  std::vector<LoadSample> samples = load->samples;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (load->answered[i]) continue;
    samples[i].done = SteadyClock::now() - start;
    samples[i].status = DeadlineExceeded("not answered within {:g} s of the last request",
                                         std::chrono::duration<double>(options.patience).count());
  }
  return samples;
}

}  // namespace chairlift
