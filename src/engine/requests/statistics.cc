#include "engine/requests/statistics.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace chairlift {
namespace {

void Add(ModelStatistics::Count& count, Duration time) {
  ++count.count;
  count.ns += static_cast<uint64_t>(std::max<int64_t>(0, time.count()));
}

}  // namespace

StatisticsRecorder::StatisticsRecorder(std::string name, std::string version) {
  statistics_.name = std::move(name);
  statistics_.version = std::move(version);
}

void StatisticsRecorder::Executed(std::span<const int32_t> rows, int padding, Duration compute,
                                  double share) {
  const std::lock_guard<std::mutex> lock(mutex_);
  executions_ += share;
  statistics_.padded_rows += static_cast<uint64_t>(padding);
  const Duration each = compute / static_cast<int64_t>(rows.size());
  for (const int32_t of_step : rows) Add(statistics_.batches[of_step], each);
}

void StatisticsRecorder::Succeeded(int rows, const Times& times, bool step) {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  const std::lock_guard<std::mutex> lock(mutex_);
  statistics_.inference_count += static_cast<uint64_t>(rows);
  statistics_.last_inference_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch).count();
  Add(statistics_.success, times.total);
  if (step) ++statistics_.steps.success;
  Add(statistics_.queue, times.queue);
  Add(statistics_.compute_input, times.compute_input);
  Add(statistics_.compute_infer, times.compute_infer);
  Add(statistics_.compute_output, times.compute_output);
}

void StatisticsRecorder::Failed(const std::string& reason, Duration total, bool step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Add(statistics_.fail, total);
  ++statistics_.failures[reason];
  if (!step) return;
  ++statistics_.steps.fail;
  ++statistics_.steps.failures[reason];
}

void StatisticsRecorder::CacheHit(Duration time, bool step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Add(statistics_.cache_hit, time);
  Add(statistics_.success, time);
  if (step) ++statistics_.steps.success;
}

void StatisticsRecorder::CacheMiss(Duration time) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Add(statistics_.cache_miss, time);
}

ModelStatistics StatisticsRecorder::Read() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  ModelStatistics statistics = statistics_;
  constexpr double kRounding = 1e-6;  // for sums of shares
  statistics.execution_count = static_cast<uint64_t>(std::ceil(executions_ - kRounding));
  statistics.waiting = waiting_;
  statistics.steps.running = running_steps_;
  statistics.running = running_ + statistics.steps.running;
  return statistics;
}

std::string FailureReason(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kCancelled:
      return "cancelled";
    case absl::StatusCode::kDeadlineExceeded:
      return "timeout";
    case absl::StatusCode::kUnavailable:
      return "shutdown";
    case absl::StatusCode::kInvalidArgument:
      return "invalid";
    default:
      return "error";
  }
}

}  // namespace chairlift
