// A compute device as the runtime sees it: memory, and streams that execute work in order.
//
// A device is thread-safe. A stream is used by one thread at a time; only the CPU's streams allow
// several. Work runs in the order of the calls, before or after the call returns. So an enqueued
// task may use the results of the task before it, and several tasks can be enqueued without
// waiting.
//
// Address arithmetic on device memory is allowed, but only the device's own work may read or write
// there. The CPU's memory is host memory; its tensors have no device().
//
// A call that returns an error has enqueued nothing. Work that fails later fails the next event
// recorded on its stream and nothing after that. Work between the failure and that event is
// skipped.
#ifndef CHAIRLIFT_DEVICE_DEVICE_H_
#define CHAIRLIFT_DEVICE_DEVICE_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "chairlift/status.h"
#include "chairlift/tensor.h"

namespace chairlift {

class DeviceKernels;  // ops/operator.h
class Stream;

class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }  // "cpu"
  // Whether this is the CPU: its memory is host memory, and its streams run at once.
  bool is_host() const { return is_host_; }
  // The kernels that operators have for this device; null if there are none, as for the CPU.
  const DeviceKernels* kernels() const { return kernels_; }
  // Identifies the device's memory in Tensor::device(): null for host memory.
  const Device* memory() const { return is_host() ? nullptr : this; }
  // What measured costs depend on: the processor and its instruction set.
  virtual std::string Description() const = 0;

  // Long-lived memory: not recycled, and freed with the last copy. At that time no work may use it
  // (Stream::Keep). Uninitialised, 64-byte aligned. kResourceExhausted if there is no more.
  virtual StatusOr<std::shared_ptr<void>> Allocate(size_t bytes) = 0;
  virtual StatusOr<std::unique_ptr<Stream>> NewStream() = 0;

 protected:
  Device(std::string name, bool is_host, const DeviceKernels* kernels)
      : name_(std::move(name)), is_host_(is_host), kernels_(kernels) {}

 private:
  const std::string name_;
  const bool is_host_;
  const DeviceKernels* const kernels_;
};

// A point in a stream. Thread-safe.
class Event {
 public:
  using Callback = absl::AnyInvocable<void(const Status&)>;

  bool done() const;
  // Waits until everything before it on its stream has run. Returns the first error since the
  // previous event.
  Status Wait();
  // Calls `callback` once with that status: now if the event is done, otherwise later on a thread
  // of the device. The callback must be short and must not destroy the stream.
  void Then(Callback callback);

  // For device implementations: marks the event as done. Called once.
  void Complete(Status status);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Status> status_;
  std::vector<Callback> callbacks_;
};

// Must not outlive its device. The destructor waits for enqueued work.
class Stream {
 public:
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device& device() const { return device_; }

  // Uninitialised recycled memory, 64-byte aligned, readable 64 bytes past the end, for later work
  // of this stream. The last copy may be dropped on any thread. The memory is reused in stream
  // order, so work that was enqueued before may still use it. kResourceExhausted if there is no
  // more.
  virtual StatusOr<Tensor> NewTensor(DType dtype, const Shape& shape) = 0;
  // Copies between host memory, which must stay valid until the copy has run, and device memory.
  virtual Status CopyIn(void* to, const void* host, size_t bytes) = 0;
  virtual Status CopyOut(void* host, const void* from, size_t bytes) = 0;
  // Copies rows[r], of row_bytes each, to `to` + r · row_bytes, all on the device. `rows` itself is
  // in host memory and is read before the call returns.
  virtual Status Gather(void* to, const std::byte* const* rows, int64_t count,
                        size_t row_bytes) = 0;
  // Copies of row_bytes each on the device. No target overlaps another copy's target or source.
  // `copies` itself is in host memory and is read before the call returns.
  struct RowCopy {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
  };
  virtual Status CopyRows(std::span<const RowCopy> copies, size_t row_bytes) = 0;
  // A hint that the content is no longer needed.
  virtual void Discard(void* /*from*/, size_t /*bytes*/) {}
  // Keeps `owner` until all work enqueued so far has run.
  virtual void Keep(std::shared_ptr<const void> owner) = 0;
  virtual std::shared_ptr<Event> Record() = 0;

  Status Copy(void* to, const void* from, size_t bytes);
  // A copy of a present device tensor, on the same device.
  StatusOr<Tensor> Clone(const Tensor& tensor);
  // Copies a host tensor to the device. Its owner is kept until the copy has run.
  StatusOr<Tensor> Upload(const Tensor& host);

 protected:
  explicit Stream(Device& device) : device_(device) {}

 private:
  Device& device_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_DEVICE_H_
