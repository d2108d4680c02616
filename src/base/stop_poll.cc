#include "base/stop_poll.h"

namespace chairlift {
namespace {

thread_local const std::atomic<bool>* stop_of_thread = nullptr;

}  // namespace

StopScope::StopScope(const std::atomic<bool>* stop) : outer_(stop_of_thread) {
  stop_of_thread = stop;
}

StopScope::~StopScope() { stop_of_thread = outer_; }

StopPoll::StopPoll() : stop_(stop_of_thread) {}

Status StopPoll::Result() const { return Stopped() ? StoppedStatus() : absl::OkStatus(); }

Status StoppedStatus() { return absl::CancelledError("the run was stopped"); }

}  // namespace chairlift
