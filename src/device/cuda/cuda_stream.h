// A stream of an NVIDIA GPU, and what kernels need from it.
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

// OK for success. Otherwise kInternal with CUDA's message, "what: an illegal memory access was
// encountered"; kResourceExhausted if the device is out of memory.
Status Checked(cudaError_t error, const char* what);

// Errors in the data that only a kernel could detect.
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

  // For the calling thread; sets its current device.
  cudaStream_t handle() const {
    cudaSetDevice(handle_->device);
    return handle_->stream;
  }
  // Where the next enqueued kernel stores a DataFault with atomicMax, so that the next event fails.
  // On the device; 0 before.
  int* fault() {
    may_fault_ = true;
    return fault_;
  }

 private:
  // What tensors need to return their memory. It outlives the stream if tensors do. Thread-safe
  // except for members that are set once.
  struct Handle {
    ~Handle();
    // Free memory is kept by size and reused for work that is enqueued later: that work runs after
    // all earlier users. Null if the device is out of memory.
    void* Take(size_t bytes);
    void GiveBack(void* memory, size_t bytes);

    int device = 0;
    cudaStream_t stream = nullptr;
    std::mutex mutex;
    std::map<size_t, std::vector<void*>> unused;  // guarded by mutex; by size
    size_t unused_bytes = 0;                      // guarded by mutex
  };
  // A copy from pinned memory to its final destination.
  struct CopyBack {
    void* to = nullptr;
    const void* from = nullptr;
    size_t bytes = 0;
  };
  // The state behind an event.
  struct Point {
    std::shared_ptr<Event> event;
    cudaEvent_t reached = nullptr;
    std::vector<CopyBack> copies;
    std::vector<std::shared_ptr<const void>> kept;  // including pinned memory
    const int* fault = nullptr;                     // pinned; null: no kernel could fail
  };

  explicit CudaStream(CudaDevice& device);
  // Completes points in order until the stream ends.
  void Main();
  void Complete(Point point);

  CudaDevice& cuda_;
  std::shared_ptr<Handle> handle_;
  int* fault_ = nullptr;  // on the device
  bool may_fault_ = false;
  Point next_;  // the state of the next event

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Point> points_;         // guarded by mutex_
  std::vector<cudaEvent_t> unused_;  // guarded by mutex_
  bool ending_ = false;              // guarded by mutex_
  std::thread thread_;
};

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_DEVICE_CUDA_CUDA_STREAM_H_
