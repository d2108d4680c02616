// The counters of one loaded model.
#ifndef CHAIRLIFT_ENGINE_REQUESTS_STATISTICS_H_
#define CHAIRLIFT_ENGINE_REQUESTS_STATISTICS_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "base/clock.h"
#include "chairlift/engine.h"

namespace chairlift {

// Thread-safe.
class StatisticsRecorder {
 public:
  // How the time of one request was spent.
  struct Times {
    Duration queue{0};
    Duration compute_input{0};
    Duration compute_infer{0};
    Duration compute_output{0};
    Duration total{0};
  };

  StatisticsRecorder(std::string name, std::string version);

  // One task ran, successfully or not: a batch with these `rows` in its steps, and `padding` rows.
  // `share` of an execution of the model: less than 1 if a request needs several tasks.
  void Executed(std::span<const int32_t> rows, int padding, Duration compute, double share);
  // `step`: the request is part of another one, which counts itself.
  void Succeeded(int rows, const Times& times, bool step);
  // `reason`: "queue_full", "timeout", "cancelled", "invalid", "error", "shutdown".
  void Failed(const std::string& reason, Duration total, bool step);
  // The response cache had the answer, which took `time`; or it did not.
  void CacheHit(Duration time, bool step);
  void CacheMiss(Duration time);
  void SetWaiting(int requests) { waiting_ = requests; }
  void AddRunning(int requests, bool step) { (step ? running_steps_ : running_) += requests; }

  ModelStatistics Read() const;

 private:
  mutable std::mutex mutex_;
  ModelStatistics statistics_;  // guarded by mutex_; Read() sets `waiting` and `running`
  double executions_ = 0;       // guarded by mutex_
  std::atomic<int> waiting_{0};
  std::atomic<int> running_{0};  // without the steps
  std::atomic<int> running_steps_{0};
};

// The name under which statistics count a failure.
std::string FailureReason(const Status& status);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUESTS_STATISTICS_H_
