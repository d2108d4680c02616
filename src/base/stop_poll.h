// Ends long loops of kernels early when no request needs the result any more.
#ifndef CHAIRLIFT_BASE_STOP_POLL_H_
#define CHAIRLIFT_BASE_STOP_POLL_H_

#include <atomic>
#include <cstdint>

#include "base/status.h"

namespace chairlift {

// While it exists, kernels on this thread may end with StoppedStatus() once `stop` is set. Null:
// they run to their end. Scopes nest.
class StopScope {
 public:
  explicit StopScope(const std::atomic<bool>* stop);
  ~StopScope();
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

 private:
  const std::atomic<bool>* outer_;
};

// For kernels whose time grows faster than their inputs. The kernel makes one in Run(). Parts that
// other threads run copy it, because each thread counts for itself.
class StopPoll {
 public:
  StopPoll();  // for the innermost StopScope of this thread

  // Call it every few microseconds at the least. `work`: simple operations since the last call. The
  // flag is read once in a while.
  bool Stopped(int64_t work) {
    if (stop_ == nullptr || (left_ -= work) > 0) return false;
    left_ = kBetween;
    return Stopped();
  }
  bool Stopped() const { return stop_ != nullptr && stop_->load(std::memory_order_relaxed); }
  // StoppedStatus() or OK, after the last part.
  Status Result() const;

 private:
  static constexpr int64_t kBetween = int64_t{1} << 20;
  const std::atomic<bool>* stop_;
  int64_t left_ = kBetween;
};

// kCancelled.
Status StoppedStatus();

}  // namespace chairlift

#endif  // CHAIRLIFT_BASE_STOP_POLL_H_
