#include "device/device.h"

#include <utility>

#include "base/status.h"

namespace chairlift {

bool Event::done() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return status_.has_value();
}

Status Event::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return status_.has_value(); });
  return *status_;
}

void Event::Then(Callback callback) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!status_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback(*status_);
}

void Event::Complete(Status status) {
  std::vector<Callback> callbacks;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    status_ = std::move(status);
    callbacks.swap(callbacks_);
    changed_.notify_all();
  }
  for (Callback& callback : callbacks) callback(*status_);
}

Status Stream::Copy(void* to, const void* from, size_t bytes) {
  const auto* const row = static_cast<const std::byte*>(from);
  return Gather(to, &row, 1, bytes);
}

StatusOr<Tensor> Stream::Clone(const Tensor& tensor) {
  CHAIRLIFT_ASSIGN_OR_RETURN(Tensor clone, NewTensor(tensor.dtype(), tensor.shape()));
  CHAIRLIFT_RETURN_IF_ERROR(Copy(clone.raw(), tensor.raw(), tensor.byte_size()));
  return clone;
}

StatusOr<Tensor> Stream::Upload(const Tensor& host) {
  CHAIRLIFT_ASSIGN_OR_RETURN(Tensor uploaded, NewTensor(host.dtype(), host.shape()));
  CHAIRLIFT_RETURN_IF_ERROR(CopyIn(uploaded.raw(), host.raw(), host.byte_size()));
  Keep(host.owner());
  return uploaded;
}

}  // namespace chairlift
