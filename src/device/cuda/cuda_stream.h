// A stream of an NVIDIA GPU, and what kernels need of it.
#ifndef CHAIRLIFT_DEVICE_CUDA_CUDA_STREAM_H_
#define CHAIRLIFT_DEVICE_CUDA_CUDA_STREAM_H_

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "device/cuda/pinned_memory.h"
#include "device/device.h"

namespace chairlift::cuda {

class CudaDevice;

// kInternal with CUDA's words, "what: an illegal memory access was encountered"; OK for success.
// kResourceExhausted where the device is out of memory.
Status Checked(cudaError_t error, const char* what);

// What a kernel found wrong in the data that it was given, which only it could see.
enum class DataFault : int {
  kNone = 0,
  kIndexOutOfRange = 1,
};

class CudaStream final : public Stream {
 public:
  static StatusOr<std::unique_ptr<CudaStream>> Create(CudaDevice& device);
  ~CudaStream() override;

  StatusOr<Tensor> NewTensor(DType dtype, const Shape& shape) override;
  Status CopyIn(void* to, const void* host, size_t bytes) override;
  Status CopyOut(void* host, const void* from, size_t bytes) override;
  Status Gather(void* to, const std::byte* const* rows, int64_t count, size_t row_bytes) override;
  Status CopyRows(std::span<const RowCopy> copies, size_t row_bytes) override;
  void Keep(std::shared_ptr<const void> owner) override;
  std::shared_ptr<Event> Record() override;

  // For the calling thread, whose current device it sets.
  cudaStream_t handle() const {
    cudaSetDevice(handle_->device);
    return handle_->stream;
  }
  // Where a kernel that is enqueued next puts a DataFault (on the device, 0 before), so that the
  // next event fails: atomicMax.
  int* fault() {
    may_fault_ = true;
    return fault_;
  }

 private:
  // What tensors need to give their memory back: outlives the stream where they do. Thread-safe but
  // for what is set once.
  struct Handle {
    ~Handle();
    // Memory that no tensor holds is kept by size, and given out again to work that is enqueued
    // later: it runs after what may still use it. Null where the device has no more.
    void* Take(size_t bytes);
    void GiveBack(void* memory, size_t bytes);

    int device = 0;
    cudaStream_t stream = nullptr;
    std::mutex mutex;
    std::map<size_t, std::vector<void*>> unused;  // guarded by mutex; by size
    size_t unused_bytes = 0;                      // guarded by mutex
  };
  // A copy from pinned memory to where the caller wants it.
  struct CopyBack {
    void* to = nullptr;
    const void* from = nullptr;
    size_t bytes = 0;
  };
  // What an event stands for.
  struct Point {
    std::shared_ptr<Event> event;
    cudaEvent_t reached = nullptr;
    std::vector<CopyBack> copies;
    std::vector<std::shared_ptr<const void>> kept;  // pinned memory among them
    const int* fault = nullptr;                     // pinned; null: nothing could
  };

  explicit CudaStream(CudaDevice& device);
  // Completes points in order, until the stream has ended.
  void Main();
  void Complete(Point point);

  CudaDevice& cuda_;
  std::shared_ptr<Handle> handle_;
  int* fault_ = nullptr;  // on the device
  bool may_fault_ = false;
  Point next_;  // what the next event stands for

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Point> points_;         // guarded by mutex_
  std::vector<cudaEvent_t> unused_;  // guarded by mutex_
  bool ending_ = false;              // guarded by mutex_
  std::thread thread_;
};

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_DEVICE_CUDA_CUDA_STREAM_H_
