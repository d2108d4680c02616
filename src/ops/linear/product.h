// The batched matrix product that MatMul, Gemm and FusedMatMul come down to.
#ifndef CHAIRLIFT_OPS_LINEAR_PRODUCT_H_
#define CHAIRLIFT_OPS_LINEAR_PRODUCT_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/implementations.h"
#include "ops/linear/activation.h"
#include "ops/operator.h"

namespace chairlift {

// C[i] = f(alpha · A[i]·B[i] + bias + residual[i]) for i in [0, batches); C is dense
// [batches, m, n]. Element (r, k) of A[i] lies at a_offsets[i] + r · a_row_stride + k · a_k_stride,
// and (k, c) of B[i] at b_offsets[i] + k · b_k_stride + c · b_n_stride, in elements.
struct Product {
  DType dtype = DType::kUndefined;
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row_stride = 0, a_k_stride = 0;
  int64_t b_k_stride = 0, b_n_stride = 0;
  std::vector<int64_t> a_offsets, b_offsets;  // one a batch
  float alpha = 1.0f;
  Activation activation;

  // The node's inputs that play each part; −1 where absent.
  int bias_input = -1;  // [n]
  int residual_input = -1;
  float residual_scale = 1.0f;
  // Element (r, c) of residual[i] lies at (i · m + r) · row_stride + c · column_stride: 0 where it
  // repeats. Other row strides than n only where there is one batch.
  int64_t residual_row_stride = 0, residual_column_stride = 1;

  int64_t batches() const { return static_cast<int64_t>(a_offsets.size()); }
};

// The products that these operators stand for; kernels of every device compute them.
Product MatMulProduct(const CompileContext& context);
StatusOr<Product> FusedMatMulProduct(const CompileContext& context);
Product GemmProduct(const CompileContext& context);
// A product whose batches share B and lie one after the other in A becomes one of more rows.
void MergeBatches(Product& product);

// All ways of computing it, in the order in which they are asked.
std::span<const Implementation<Product>> ProductImplementations();
// The first that accepts. A is input 0 and B input 1 of the node being compiled.
StatusOr<std::unique_ptr<Kernel>> CompileProduct(Product product, const CompileContext& context);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_PRODUCT_H_
