// One batched matrix product with fixed shapes on a GPU, by cuBLASLt.
#ifndef CHAIRLIFT_OPS_CUDA_CUBLAS_H_
#define CHAIRLIFT_OPS_CUDA_CUBLAS_H_

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/cuda/cuda_device.h"
#include "ops/operator.h"

namespace chairlift::cuda {

// C[i] = f(alpha · A[i]·B[i] + beta · R[i] + bias) for i in [0, batches): A[i] is m × k, B[i] k ×
// n, C[i] and R[i] m × n, all row-major. Sizes and strides are in elements.
struct MatrixProduct {
  DType dtype = DType::kUndefined;   // of A, B: float32, float64, float16 or bfloat16
  DType result = DType::kUndefined;  // of C, R, bias: dtype, or float32 for 16-bit A and B
  int64_t batches = 1, m = 0, n = 0, k = 0;
  bool transpose_a = false;  // A[i] is stored [k, m]
  bool transpose_b = false;  // B[i] is stored [n, k]
  // From a stored row to the next; R has C's.
  int64_t a_row_stride = 0, b_row_stride = 0, c_row_stride = 0;
  // From one i to the next: 0 if all share a matrix; R has C's.
  int64_t a_batch_stride = 0, b_batch_stride = 0, c_batch_stride = 0;
  float alpha = 1, beta = 0;
  bool has_bias = false;  // [n]
  bool relu = false;      // f; may be 0 for NaN
};

// Sums are computed in float32 (float64 in float64) and rounded once to the result's type. If the
// device is set to do so, float32 operands are rounded to TensorFloat-32. Run() is thread-safe.
class CublasProduct {
 public:
  // Selects algorithms for `device`, which must be the current device. Equal products share the
  // selection. Unimplemented if cuBLASLt has no algorithm.
  static StatusOr<CublasProduct> Create(const CudaDevice& device, const MatrixProduct& product);

  const MatrixProduct& product() const { return plan_->product; }
  // Bytes that Run() needs at a 64-byte aligned address.
  size_t scratch_bytes() const { return plan_->scratch_bytes; }
  // `bias` and `residual` (R) are null if absent. Operands must be aligned to their elements;
  // alignment to 16 bytes is faster. C may be R; otherwise nothing may overlap it.
  Status Run(cudaStream_t stream, const void* a, const void* b, const void* bias,
             const void* residual, void* c, void* scratch) const;

 private:
  struct Plan {
    MatrixProduct product;
    cublasLtHandle_t handle = nullptr;
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    cudaDataType_t scale = CUDA_R_32F;  // type of alpha and beta
    // In cuBLAS's column-major order: C is the transposed product of B and A. Only read, though
    // cuBLASLt's interface does not say so.
    mutable cublasLtMatrixLayoutOpaque_t first, second, result;
    cublasLtMatmulAlgo_t aligned;  // for operands aligned to 16 bytes
    cublasLtMatmulAlgo_t any;
    size_t aligned_workspace = 0, any_workspace = 0;  // bytes
    size_t scratch_bytes = 0;
    bool empty = false;  // nothing to compute: no elements, or zeros (k = 0)
  };

  explicit CublasProduct(std::shared_ptr<const Plan> plan) : plan_(std::move(plan)) {}
  static StatusOr<std::shared_ptr<const Plan>> MakePlan(const CudaDevice& device,
                                                        const MatrixProduct& product);
  static Status Describe(const MatrixProduct& product, cublasComputeType_t compute,
                         cudaDataType_t scale, const void* bias, cublasLtMatmulDesc_t description);
  // The best algorithm for operands aligned to this many bytes.
  static Status Choose(Plan& plan, uint32_t alignment, cublasLtMatmulAlgo_t& algorithm,
                       size_t& workspace);

  std::shared_ptr<const Plan> plan_;
};

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_OPS_CUDA_CUBLAS_H_
