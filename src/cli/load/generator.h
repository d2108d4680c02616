// Open-loop load: requests are sent at their scheduled times whatever the answers do, and latency
// counts from the scheduled time. The rules for VALID follow MLPerf's loadgen.
#ifndef CHAIRLIFT_CLI_LOAD_GENERATOR_H_
#define CHAIRLIFT_CLI_LOAD_GENERATOR_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "cli/load/schedule.h"
#include "cli/load/target.h"

namespace chairlift {

struct LoadReport {
  int64_t scheduled = 0;
  int64_t succeeded = 0;
  // By message; messages that differ only in numbers count as the first one.
  std::map<std::string, int64_t> failures;
  double scheduled_rate = 0;  // requests per second
  // Successes per second, from the first scheduled to the last answered.
  double achieved_rate = 0;
  double mean_ms = 0, p50_ms = 0, p90_ms = 0, p99_ms = 0, max_ms = 0;  // over successes
  // How late requests were sent.
  double generator_lag_p99_ms = 0;
  bool kept_up = true;     // at least 95% of the rate was answered
  bool sent_late = false;  // the generator itself did not keep up: latencies are too long
  // Empty: VALID. Otherwise every reason why the results are not valid.
  std::vector<std::string> invalid;
};

// One sample per request, as recorded by the generator.
struct LoadSample {
  std::chrono::nanoseconds scheduled{0}, sent{0}, done{0};  // after the start
  Status status;
};

// Computes the results and their validity; a pure function.
LoadReport Summarize(std::span<const LoadSample> samples, double seconds);

inline double Ms(std::chrono::nanoseconds ns) { return static_cast<double>(ns.count()) * 1e-6; }

// For sorted values, by nearest rank: the smallest that at least the fraction `p` of all do not
// exceed.
double Percentile(std::span<const double> sorted, double p);

inline constexpr std::chrono::milliseconds kProgressEvery(100);

struct LoadTestOptions {
  // How long to wait for answers after the last request was due. Requests without an answer by then
  // have failed (kDeadlineExceeded).
  std::chrono::nanoseconds patience = std::chrono::seconds(60);
  // Called with the number of requests sent, a few times per second; may be null.
  std::function<void(int64_t)> progress = {};
};

// Calls `send` with the index of each arrival when it is due; `start` is the start of the schedule.
// Meanwhile the calling thread has priority over the engine's workers if the system permits that.
void SendOnTime(std::span<const Arrival> schedule, std::chrono::steady_clock::time_point start,
                const std::function<void(int64_t)>& progress,
                const std::function<void(size_t)>& send);

// `prepared` maps an arrival to a prepared request.
std::vector<LoadSample> PutLoad(LoadTarget& target, std::span<const Arrival> schedule,
                                const std::function<size_t(const Arrival&)>& prepared,
                                const LoadTestOptions& options = {});

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_LOAD_GENERATOR_H_
