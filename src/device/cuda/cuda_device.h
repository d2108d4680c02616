// An NVIDIA GPU.
#ifndef CHAIRLIFT_DEVICE_CUDA_CUDA_DEVICE_H_
#define CHAIRLIFT_DEVICE_CUDA_CUDA_DEVICE_H_

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "device/cuda/pinned_memory.h"
#include "device/device.h"

namespace chairlift::cuda {

class CudaDevice final : public Device {
 public:
  // kNotFound if the device or the driver does not exist. `tf32`: products of float32 may round
  // their operands to TensorFloat-32 (10 bits of mantissa).
  static StatusOr<std::unique_ptr<CudaDevice>> Create(int index, bool tf32,
                                                      const DeviceKernels* kernels);

  std::string Description() const override { return description_; }
  StatusOr<std::shared_ptr<void>> Allocate(size_t bytes) override;
  StatusOr<std::unique_ptr<Stream>> NewStream() override;
  // Allocates memory as Allocate() does, and copies host memory of any kind to it. After the
  // return, every stream sees the bytes. Thread-safe; sets the calling thread's current device.
  StatusOr<std::shared_ptr<void>> Upload(const void* host, size_t bytes) const;

  ~CudaDevice() override;

  int index() const { return index_; }
  bool tf32() const { return tf32_; }
  PinnedMemory& pinned() { return *pinned_; }

 private:
  CudaDevice(int index, bool tf32, const DeviceKernels* kernels, const cudaDeviceProp& properties,
             cudaStream_t uploads);

  const int index_;
  const bool tf32_;
  const std::string description_;
  const std::shared_ptr<PinnedMemory> pinned_;
  const cudaStream_t uploads_;  // owned
};

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_DEVICE_CUDA_CUDA_DEVICE_H_
