// The operators that have a CUDA kernel, and what their kernels share.
//
// A file of kernels is a pair: `name.cc` says what is compiled for which operands, with shapes and
// strides settled, and `name.cu` computes, launched by functions of `name.cuh` that take a stream
// and plain values. Kernels read each element type they are listed for, compute in float32 (double
// for double, integers as they are), and write as the CPU's do: a reference in float64 is what both
// are tested against.
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

// An operator's kernel for these operands. kUnimplemented says for what there is none; all operands
// are row-major (the makers of models for the device leave layouts alone).
struct KernelEntry {
  const char* domain;  // "" for ai.onnx
  const char* name;
  StatusOr<std::unique_ptr<Kernel>> (*compile)(const CompileContext& context);
};

// One function a file.
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

// In Kernel::Run().
inline CudaStream& StreamOf(const KernelArgs& args) {
  return static_cast<CudaStream&>(args.stream);
}
// After launches: what cudaGetLastError() says of them.
inline Status Launched(const char* what) { return Checked(cudaGetLastError(), what); }

// A copy on the device of what compile() made on the host (packed weights), there when it returns.
// Lives as long as the tensor: keep it through CompileContext::weights.
StatusOr<Tensor> UploadNow(const CompileContext& context, const Tensor& host);

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_OPS_CUDA_KERNELS_H_
