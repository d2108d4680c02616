// Stops trial runs that no request waits for: a loop may take hours.
#ifndef CHAIRLIFT_RUNTIME_RUN_DEADLINE_H_
#define CHAIRLIFT_RUNTIME_RUN_DEADLINE_H_

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "runtime/executable.h"

namespace chairlift {

// Thread-safe.
class RunDeadline {
 public:
  // Sets stop() once `after` has passed.
  explicit RunDeadline(Duration after);
  ~RunDeadline();
  RunDeadline(const RunDeadline&) = delete;
  RunDeadline& operator=(const RunDeadline&) = delete;

  // For Executable::Run(), which ends with kCancelled when it is set.
  const StopFlag* stop() const { return &stop_; }
  bool passed() const { return stop_.load(); }

 private:
  StopFlag stop_{false};
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ended_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_RUN_DEADLINE_H_
