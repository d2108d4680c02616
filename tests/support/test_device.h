// A device for tests, over the host's memory: its streams run on threads of their own, and are held
// back, counted and made to fail on demand.
//
// Its addresses are those of memory that must not be touched; work reads and writes what lies
// elsewhere under Real(address). Memory that was freed can no longer be used there either. So code
// that reads the device's memory on the host, or frees it while work still needs it, ends the
// program.
#ifndef CHAIRLIFT_TESTS_SUPPORT_TEST_DEVICE_H_
#define CHAIRLIFT_TESTS_SUPPORT_TEST_DEVICE_H_

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/functional/any_invocable.h"
#include "device/device.h"

namespace chairlift::testing {

// Its streams, and all memory of it, must go first.
class TestDevice final : public Device {
 public:
  struct Counts {
    std::atomic<int> allocations = 0;
    std::atomic<int> live = 0;  // of those
    std::atomic<int> copies_in = 0;
    std::atomic<int> copies_out = 0;
    std::atomic<int> gathers = 0;  // Copy() is one
    std::atomic<int> launches = 0;
  };

  explicit TestDevice(const DeviceKernels* kernels = nullptr);
  ~TestDevice() override;

  std::string Description() const override { return "made for tests"; }
  StatusOr<std::shared_ptr<void>> Allocate(size_t bytes) override;
  StatusOr<std::unique_ptr<Stream>> NewStream() override;

  // From Hold() to Resume() nothing that is enqueued runs.
  void Hold();
  void Resume();
  // The n-th (from 1) from now on fails: an allocation, a launch, what was launched when it runs.
  void FailAllocation(int n) { allocations_left_ = n; }
  void FailLaunch(int n) { launches_left_ = n; }
  void FailWork(int n) { work_left_ = n; }

  const Counts& counts() const { return counts_; }
  // Where what has this address of the device really is; null for any other address.
  std::byte* Real(const void* address) const;

 private:
  friend class TestStream;
  StatusOr<std::byte*> Take(size_t bytes);
  void Free(void* address);

  std::byte* addresses_ = nullptr;
  std::byte* real_ = nullptr;
  std::mutex mutex_;
  std::condition_variable resumed_;
  bool held_ = false;  // guarded by mutex_
  size_t taken_ = 0;   // guarded by mutex_: no address is returned twice
  Counts counts_;
  std::atomic<int> allocations_left_ = 0;
  std::atomic<int> launches_left_ = 0;
  std::atomic<int> work_left_ = 0;
};

class TestStream final : public Stream {
 public:
  explicit TestStream(TestDevice& device);
  ~TestStream() override;

  StatusOr<Tensor> NewTensor(DType dtype, const Shape& shape) override;
  Status CopyIn(void* to, const void* host, size_t bytes) override;
  Status CopyOut(void* host, const void* from, size_t bytes) override;
  Status Gather(void* to, const std::byte* const* rows, int64_t count, size_t row_bytes) override;
  Status CopyRows(std::span<const RowCopy> copies, size_t row_bytes) override;
  void Keep(std::shared_ptr<const void> owner) override;
  std::shared_ptr<Event> Record() override;

  // Enqueues a kernel.
  using Computation = absl::AnyInvocable<Status()>;
  Status Launch(Computation kernel);
  TestDevice& device() const { return device_; }

 private:
  using Work = absl::AnyInvocable<void()>;
  struct Queue;
  // Enqueues what is skipped after an error.
  void Compute(Computation computation);

  TestDevice& device_;
  const std::shared_ptr<Queue> queue_;
  std::thread thread_;
};

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_SUPPORT_TEST_DEVICE_H_
