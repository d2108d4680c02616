// What computation runs on, as the runtime sees it: memory, and streams of work done in order.
//
// A device is thread-safe. A stream is used by one thread at a time (the CPU's by any number); what
// it is given runs in the order in which it was given, after the call has returned or before. So a
// task that is enqueued may use the memory of the one before it, and several may be enqueued while
// nobody waits.
//
// Addresses of a device's memory may be computed with, but only its own work reads or writes there.
// The host's memory is the CPU's: its tensors have no device().
//
// An error that a call returns enqueued nothing. Work that fails later fails the next event
// recorded on its stream, and nothing after that; what lies between them is skipped.
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
  // Whether it is the CPU: its memory is the host's, and its streams run at once.
  bool is_host() const { return is_host_; }
  // What operators are compiled with for another device; null: none has a kernel for it.
  const DeviceKernels* kernels() const { return kernels_; }
  // As tensors name its memory.
  const Device* memory() const { return is_host() ? nullptr : this; }
  // What costs that are measured on it hold for: the processor, its instruction set.
  virtual std::string Description() const = 0;

  // Memory to be kept: not recycled, and handed back with the last copy. No work may use it then
  // (Stream::Keep). Uninitialised, 64-byte aligned. kResourceExhausted where there is no more.
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
  // Returns once all before it on its stream has run: the first error since the event before it.
  Status Wait();
  // Calls back with that status, once: now, where it is done, or later on a thread of the device,
  // which it must not keep for long, and where it must not end the stream.
  void Then(Callback callback);

  // For devices: it is done. Called once.
  void Complete(Status status);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Status> status_;
  std::vector<Callback> callbacks_;
};

// Must not outlive its device. Its destructor waits for what was enqueued.
class Stream {
 public:
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device& device() const { return device_; }

  // Uninitialised recycled memory, 64-byte aligned, readable 64 bytes past the end, for work of
  // this stream from now on. The last copy, dropped on any thread, gives it back in the stream's
  // order: what was enqueued before may still use it. kResourceExhausted where there is no more.
  virtual StatusOr<Tensor> NewTensor(DType dtype, const Shape& shape) = 0;
  // Between the host's memory, which must stay until the copy has run, and the device's.
  virtual Status CopyIn(void* to, const void* host, size_t bytes) = 0;
  virtual Status CopyOut(void* host, const void* from, size_t bytes) = 0;
  // rows[r], of row_bytes each, to `to` + r · row_bytes, all on the device; `rows` itself is the
  // host's and read before the call returns.
  virtual Status Gather(void* to, const std::byte* const* rows, int64_t count,
                        size_t row_bytes) = 0;
  // Copies of row_bytes each on the device; no target is another one's target or source. `copies`
  // itself is the host's and read before the call returns.
  struct RowCopy {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
  };
  virtual Status CopyRows(std::span<const RowCopy> copies, size_t row_bytes) = 0;
  // What is there need not be kept; a hint.
  virtual void Discard(void* /*from*/, size_t /*bytes*/) {}
  // Holds `owner` until what was enqueued so far has run.
  virtual void Keep(std::shared_ptr<const void> owner) = 0;
  virtual std::shared_ptr<Event> Record() = 0;

  Status Copy(void* to, const void* from, size_t bytes);
  // A copy on the device of a (present) tensor there.
  StatusOr<Tensor> Clone(const Tensor& tensor);
  // A copy on the device of a tensor of the host, whose owner is kept until then.
  StatusOr<Tensor> Upload(const Tensor& host);

 protected:
  explicit Stream(Device& device) : device_(device) {}

 private:
  Device& device_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_DEVICE_H_
