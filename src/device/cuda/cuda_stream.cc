#include "device/cuda/cuda_stream.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/rows.cuh"

namespace chairlift::cuda {
namespace {

constexpr size_t kReadablePastEnd = 64;
// Freed memory that a stream keeps for reuse.
constexpr size_t kMostUnused = size_t{1} << 30;
// How long a thread polls an event before it sleeps until the event is reached.
constexpr Duration kAskFor = std::chrono::microseconds(200);

Status StatusOf(DataFault fault) {
  if (fault == DataFault::kNone) return absl::OkStatus();
  return InvalidArgument("an index is out of range");
}

// Memory is kept in size classes, eight per power of two.
size_t SizeClass(size_t bytes) {
  constexpr size_t kLeast = 512;
  const size_t octave = std::bit_floor(std::max(bytes, kLeast));
  const size_t step = std::max(octave / 8, kLeast);
  return (bytes + step - 1) / step * step;
}

}  // namespace

CudaStream::Handle::~Handle() {
  cudaSetDevice(device);
  if (stream == nullptr) return;
  for (const auto& [bytes, memory] : unused) {
    for (void* const m : memory) cudaFreeAsync(m, stream);
  }
  cudaStreamDestroy(stream);
}

void* CudaStream::Handle::Take(size_t bytes) {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    std::vector<void*>& same = unused[bytes];
    if (!same.empty()) {
      void* const memory = same.back();
      same.pop_back();
      unused_bytes -= bytes;
      return memory;
    }
  }
  cudaSetDevice(device);
  void* memory = nullptr;
  if (cudaMallocAsync(&memory, bytes, stream) == cudaSuccess) return memory;
  cudaGetLastError();
  // The kept memory may be what is missing.
  std::map<size_t, std::vector<void*>> kept;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    kept.swap(unused);
    unused_bytes = 0;
  }
  for (const auto& [size, all] : kept) {
    for (void* const m : all) cudaFreeAsync(m, stream);
  }
  if (cudaMallocAsync(&memory, bytes, stream) == cudaSuccess) return memory;
  cudaGetLastError();
  return nullptr;
}

void CudaStream::Handle::GiveBack(void* memory, size_t bytes) {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (unused_bytes + bytes <= kMostUnused) {
      unused[bytes].push_back(memory);
      unused_bytes += bytes;
      return;
    }
  }
  cudaSetDevice(device);
  cudaFreeAsync(memory, stream);
}

CudaStream::CudaStream(CudaDevice& device)
    : Stream(device), cuda_(device), handle_(std::make_shared<Handle>()) {
  handle_->device = device.index();
}

StatusOr<std::unique_ptr<CudaStream>> CudaStream::Create(CudaDevice& device) {
  auto made = std::unique_ptr<CudaStream>(new CudaStream(device));
  CHAIRLIFT_RETURN_IF_ERROR(Checked(cudaSetDevice(device.index()), "cudaSetDevice"));
  CHAIRLIFT_RETURN_IF_ERROR(
      Checked(cudaStreamCreateWithFlags(&made->handle_->stream, cudaStreamNonBlocking),
              "cudaStreamCreate"));
  CHAIRLIFT_RETURN_IF_ERROR(Checked(
      cudaMalloc(reinterpret_cast<void**>(&made->fault_), sizeof(*made->fault_)), "a stream"));
  CHAIRLIFT_RETURN_IF_ERROR(Checked(
      cudaMemsetAsync(made->fault_, 0, sizeof(*made->fault_), made->handle_->stream), "a stream"));
  made->thread_ = std::thread([stream = made.get()] { stream->Main(); });
  return made;
}

CudaStream::~CudaStream() {
  if (thread_.joinable()) {
    Record();  // what was enqueued since the last event
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
      changed_.notify_one();
    }
    thread_.join();
  }
  cudaSetDevice(cuda_.index());
  for (const cudaEvent_t event : unused_) cudaEventDestroy(event);
  cudaFree(fault_);
}

StatusOr<Tensor> CudaStream::NewTensor(DType dtype, const Shape& shape) {
  const size_t bytes = static_cast<size_t>(shape.NumElements()) * DTypeSize(dtype);
  const size_t size = SizeClass(bytes + kReadablePastEnd);
  void* const memory = handle_->Take(size);
  if (memory == nullptr) {
    return ResourceExhausted("device '{}' has no memory for {} bytes", device().name(), bytes);
  }
  auto owner = std::shared_ptr<void>(
      memory, [handle = handle_, size](void* p) { handle->GiveBack(p, size); });
  return Tensor::Wrap(dtype, shape, memory, std::move(owner), &device());
}

Status CudaStream::CopyIn(void* to, const void* host, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  CHAIRLIFT_ASSIGN_OR_RETURN(std::shared_ptr<void> pinned, cuda_.pinned().Take(bytes));
  std::memcpy(pinned.get(), host, bytes);
  CHAIRLIFT_RETURN_IF_ERROR(
      Checked(cudaMemcpyAsync(to, pinned.get(), bytes, cudaMemcpyHostToDevice, handle()),
              "a copy to the GPU"));
  next_.kept.push_back(std::move(pinned));
  return absl::OkStatus();
}

Status CudaStream::CopyOut(void* host, const void* from, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  CHAIRLIFT_ASSIGN_OR_RETURN(std::shared_ptr<void> pinned, cuda_.pinned().Take(bytes));
  CHAIRLIFT_RETURN_IF_ERROR(
      Checked(cudaMemcpyAsync(pinned.get(), from, bytes, cudaMemcpyDeviceToHost, handle()),
              "a copy from the GPU"));
  next_.copies.push_back({host, pinned.get(), bytes});
  next_.kept.push_back(std::move(pinned));
  return absl::OkStatus();
}

Status CudaStream::Gather(void* to, const std::byte* const* rows, int64_t count, size_t row_bytes) {
  if (count == 0 || row_bytes == 0) return absl::OkStatus();
  if (count == 1) {
    return Checked(cudaMemcpyAsync(to, rows[0], row_bytes, cudaMemcpyDeviceToDevice, handle()),
                   "a copy on the GPU");
  }
  LaunchGather(to, rows, count, row_bytes, handle());
  return Checked(cudaGetLastError(), "a gather of rows");
}

Status CudaStream::CopyRows(std::span<const RowCopy> copies, size_t row_bytes) {
  if (copies.empty() || row_bytes == 0) return absl::OkStatus();
  LaunchCopyRows(copies, row_bytes, handle());
  return Checked(cudaGetLastError(), "copies of rows");
}

void CudaStream::Keep(std::shared_ptr<const void> owner) {
  if (owner != nullptr) next_.kept.push_back(std::move(owner));
}

std::shared_ptr<Event> CudaStream::Record() {
  Point point = std::exchange(next_, Point());
  point.event = std::make_shared<Event>();
  std::shared_ptr<Event> event = point.event;
  const cudaStream_t stream = handle();
  if (std::exchange(may_fault_, false)) {
    const StatusOr<std::shared_ptr<void>> pinned = cuda_.pinned().Take(sizeof(*fault_));
    if (pinned.ok()) {
      cudaMemcpyAsync(pinned->get(), fault_, sizeof(*fault_), cudaMemcpyDeviceToHost, stream);
      cudaMemsetAsync(fault_, 0, sizeof(*fault_), stream);
      point.fault = static_cast<const int*>(pinned->get());
      point.kept.push_back(*pinned);
    }
  }
  std::unique_lock<std::mutex> lock(mutex_);
  if (!unused_.empty()) {
    point.reached = unused_.back();
    unused_.pop_back();
  } else {
    lock.unlock();
    cudaEventCreateWithFlags(&point.reached, cudaEventBlockingSync | cudaEventDisableTiming);
    lock.lock();
  }
  cudaEventRecord(point.reached, stream);
  points_.push_back(std::move(point));
  changed_.notify_one();
  return event;
}

void CudaStream::Main() {
  cudaSetDevice(cuda_.index());
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !points_.empty(); });
    if (points_.empty()) return;
    Point point = std::move(points_.front());
    points_.pop_front();
    lock.unlock();
    const cudaEvent_t reached = point.reached;
    Complete(std::move(point));
    lock.lock();
    unused_.push_back(reached);
  }
}

void CudaStream::Complete(Point point) {
  const Clock& clock = Clock::Steady();
  const TimePoint sleep_at = clock.Now() + kAskFor;
  cudaError_t ran = cudaErrorNotReady;
  while (ran == cudaErrorNotReady) {
    ran = clock.Now() < sleep_at ? cudaEventQuery(point.reached)
                                 : cudaEventSynchronize(point.reached);
  }
  Status status = Checked(ran, "work on the GPU");
  if (status.ok() && point.fault != nullptr) {
    status = StatusOf(static_cast<DataFault>(*point.fault));
  }
  if (status.ok()) {
    for (const CopyBack& copy : point.copies) std::memcpy(copy.to, copy.from, copy.bytes);
  }
  point.kept.clear();
  point.event->Complete(std::move(status));
}

}  // namespace chairlift::cuda
