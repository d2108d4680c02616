// The steps after a matrix product, and products that cuBLASLt does not support.
#ifndef CHAIRLIFT_OPS_CUDA_PRODUCT_CUH_
#define CHAIRLIFT_OPS_CUDA_PRODUCT_CUH_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "chairlift/tensor.h"
#include "ops/cuda/device_activation.h"

namespace chairlift::cuda {

// What is added to element (r, c) of a product, and f: bias[c] + scale · residual[r · row stride +
// c · column stride]; either may be null. Both have the output's type.
struct ProductEnd {
  const void* bias = nullptr;
  const void* residual = nullptr;
  float residual_scale = 1;
  int64_t residual_row_stride = 0, residual_column_stride = 1;  // elements
  DeviceActivation activation;
};

// out = f(product + bias + residual) for dense [rows, columns] matrices. `product` has type `from`:
// the type `to`, or float32 if `to` has 16 bits; it may be `out`. For types of ForFloats().
void FinishProduct(cudaStream_t stream, DType from, DType to, const void* product, void* out,
                   int64_t rows, int64_t columns, const ProductEnd& end);

// C[i] = f(alpha · A[i]·B[i] + …), C dense [batches, m, n], in elements as in chairlift::Product.
// Row r of C[i] is row i · m + r of the end's. k may be 0.
struct PlainProduct {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  int64_t batches = 1, m = 0, n = 0, k = 0;
  int64_t a_batch_stride = 0, a_row_stride = 0, a_k_stride = 0;
  int64_t b_batch_stride = 0, b_k_stride = 0, b_n_stride = 0;
  float alpha = 1;
  ProductEnd end;
};
// For float types, and for integers of 32 and 64 bits, which wrap and have no activation.
void LaunchPlainProduct(cudaStream_t stream, DType dtype, const PlainProduct& product);

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_OPS_CUDA_PRODUCT_CUH_
