#include "device/cuda/cuda_device.h"

#include <limits>

#include "base/status.h"
#include "device/cuda/cuda_stream.h"

namespace chairlift::cuda {

Status Checked(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();  // clears the error, which is not permanent
  if (error == cudaErrorMemoryAllocation) {
    return ResourceExhausted("{}: the GPU is out of memory", what);
  }
  return Internal("{}: {}", what, cudaGetErrorString(error));
}

namespace {

StatusOr<std::shared_ptr<void>> AllocateOn(int index, size_t bytes) {
  constexpr size_t kReadablePastEnd = 64;
  void* memory = nullptr;
  CHAIRLIFT_RETURN_IF_ERROR(Checked(cudaSetDevice(index), "cudaSetDevice"));
  CHAIRLIFT_RETURN_IF_ERROR(
      Checked(cudaMalloc(&memory, bytes + kReadablePastEnd), "memory that is kept"));
  return std::shared_ptr<void>(memory, [index](void* p) {
    cudaSetDevice(index);
    cudaFree(p);
  });
}

}  // namespace

CudaDevice::CudaDevice(int index, bool tf32, const DeviceKernels* kernels,
                       const cudaDeviceProp& properties, cudaStream_t uploads)
    : Device(fmt::format("cuda:{}", index), /*is_host=*/false, kernels),
      index_(index),
      tf32_(tf32),
      description_(fmt::format("{}, compute capability {}.{}{}", properties.name, properties.major,
                               properties.minor, tf32 ? ", TF32" : "")),
      pinned_(PinnedMemory::Create()),
      uploads_(uploads) {}

CudaDevice::~CudaDevice() {
  cudaSetDevice(index_);
  cudaStreamDestroy(uploads_);
}

StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(int index, bool tf32,
                                                         const DeviceKernels* kernels) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    cudaGetLastError();
    if (error == cudaErrorInsufficientDriver) {
      return NotFound(
          "no NVIDIA GPU can be used: this machine has no NVIDIA driver, or one that is too old");
    }
    return NotFound("no NVIDIA GPU can be used: {}", cudaGetErrorString(error));
  }
  if (index < 0 || index >= count) {
    return NotFound("device 'cuda:{}': this machine has {} NVIDIA GPUs", index, count);
  }
  cudaDeviceProp properties;
  CHAIRLIFT_RETURN_IF_ERROR(Checked(cudaSetDevice(index), "cudaSetDevice"));
  CHAIRLIFT_RETURN_IF_ERROR(
      Checked(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties"));
  // Freed memory stays with the process, which will soon need it again.
  cudaMemPool_t pool = nullptr;
  CHAIRLIFT_RETURN_IF_ERROR(
      Checked(cudaDeviceGetDefaultMemPool(&pool, index), "cudaDeviceGetDefaultMemPool"));
  uint64_t threshold = std::numeric_limits<uint64_t>::max();
  CHAIRLIFT_RETURN_IF_ERROR(
      Checked(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold),
              "cudaMemPoolSetAttribute"));
  cudaStream_t uploads = nullptr;
  CHAIRLIFT_RETURN_IF_ERROR(
      Checked(cudaStreamCreateWithFlags(&uploads, cudaStreamNonBlocking), "cudaStreamCreate"));
  return std::unique_ptr<CudaDevice>(new CudaDevice(index, tf32, kernels, properties, uploads));
}

StatusOr<std::shared_ptr<void>> CudaDevice::Allocate(size_t bytes) {
  return AllocateOn(index_, bytes);
}

StatusOr<std::shared_ptr<void>> CudaDevice::Upload(const void* host, size_t bytes) const {
  CHAIRLIFT_ASSIGN_OR_RETURN(std::shared_ptr<void> memory, AllocateOn(index_, bytes));
  if (bytes == 0) return memory;
  // cudaMemcpy() from pageable memory may return before the last bytes have arrived. It is ordered
  // with the legacy stream only: the non-blocking streams of the lanes would not wait for it.
  CHAIRLIFT_RETURN_IF_ERROR(Checked(
      cudaMemcpyAsync(memory.get(), host, bytes, cudaMemcpyHostToDevice, uploads_), "an upload"));
  CHAIRLIFT_RETURN_IF_ERROR(Checked(cudaStreamSynchronize(uploads_), "an upload"));
  return memory;
}

StatusOr<std::unique_ptr<Stream>> CudaDevice::NewStream() { return CudaStream::Create(*this); }

}  // namespace chairlift::cuda
