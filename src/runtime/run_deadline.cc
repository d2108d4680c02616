#include "runtime/run_deadline.h"

namespace chairlift {

RunDeadline::RunDeadline(Duration after)
    : thread_([this, after] {
        std::unique_lock<std::mutex> lock(mutex_);
        if (!ends_.wait_for(lock, after, [this] { return ended_; })) stop_ = true;
      }) {}

RunDeadline::~RunDeadline() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
  }
  ends_.notify_one();
  thread_.join();
}

}  // namespace chairlift
