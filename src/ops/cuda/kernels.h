// The operators that have a CUDA kernel, and common helpers of their kernels.
//
// Kernels come in pairs of files. `name.cc` selects what is compiled for which operands, with
// shapes and strides fixed. `name.cu` computes; it is launched by functions of `name.cuh` that take
// a stream and plain values. Kernels read each element type that they are listed for, compute in
// float32 (double in double, integers as integers), and write as the CPU's kernels do. Both are
// tested against a float64 reference.
#ifndef CHAIRLIFT_OPS_CUDA_KERNELS_H_
#define CHAIRLIFT_OPS_CUDA_KERNELS_H_

#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <string>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_stream.h"
#include "ops/operator.h"

namespace chairlift::cuda {

// An operator's kernel for these operands. kUnimplemented says what is not supported. All operands
// are row-major, because graphs for the device keep their layouts.
struct KernelEntry {
  const char* domain;  // "" for ai.onnx
  const char* name;
  StatusOr<std::unique_ptr<Kernel>> (*compile)(const CompileContext& context);
};

// One function per file.
std::span<const KernelEntry> ElementwiseKernels();
std::span<const KernelEntry> MovementKernels();
std::span<const KernelEntry> ReductionKernels();
std::span<const KernelEntry> NormalizationKernels();
std::span<const KernelEntry> ProductKernels();
std::span<const KernelEntry> RaggedKernels();
std::span<const KernelEntry> RecurrentKernels();
std::span<const KernelEntry> ConvolutionKernels();
std::span<const KernelEntry> PoolingKernels();
std::span<const KernelEntry> AttentionKernels();

// For use in Kernel::Run().
inline CudaStream& StreamOf(const KernelArgs& args) {
  return static_cast<CudaStream&>(args.stream);
}
// Call it after launches: converts cudaGetLastError().
inline Status Launched(const char* what) { return Checked(cudaGetLastError(), what); }

// Copies what compile() made on the host (packed weights) to the device, and waits for the copy. It
// lives as long as the tensor: keep it through CompileContext::weights.
StatusOr<Tensor> UploadNow(const CompileContext& context, const Tensor& host);

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_OPS_CUDA_KERNELS_H_
