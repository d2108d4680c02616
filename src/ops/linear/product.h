// The batched matrix product that MatMul, Gemm and FusedMatMul are converted to.
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

// C[i] = f(alpha · A[i]·B[i] + bias + residual[i]) for i in [0, batches); C is dense [batches, m,
// n]. Element (r, k) of A[i] is at a_offsets[i] + r · a_row_stride + k · a_k_stride, and (k, c) of
// B[i] at b_offsets[i] + k · b_k_stride + c · b_n_stride, in elements.
struct Product {
  DType dtype = DType::kUndefined;
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row_stride = 0, a_k_stride = 0;
  int64_t b_k_stride = 0, b_n_stride = 0;
  std::vector<int64_t> a_offsets, b_offsets;  // one per batch
  float alpha = 1.0f;
  Activation activation;

  // The node's inputs for these operands; −1 if absent.
  int bias_input = -1;  // [n]
  int residual_input = -1;
  float residual_scale = 1.0f;
  // Element (r, c) of residual[i] is at (i · m + r) · row_stride + c · column_stride; a stride of 0
  // repeats the residual along that dimension. Row strides other than n are only allowed with one
  // batch.
  int64_t residual_row_stride = 0, residual_column_stride = 1;

  int64_t batches() const { return static_cast<int64_t>(a_offsets.size()); }
};

// An attribute of MatMul, Gemm and their fused forms, set by graph/narrow_products. If it is not 0,
// the kernel rounds A and B to bfloat16 and adds in float32. All B must be constants.
inline constexpr char kBFloat16Attribute[] = "bfloat16";
bool RoundsToBFloat16(const Attributes& attributes);
// Likewise, set by graph/narrow_products. If it is not 0, the kernel rounds A and B to 8 bits and
// adds exactly. Each row of A and each column of B has its own scale.
inline constexpr char kInt8Attribute[] = "int8";
bool RoundsToInt8(const Attributes& attributes);

// Describe the products of these operators, for the kernels of any device.
Product MatMulProduct(const CompileContext& context);
StatusOr<Product> FusedMatMulProduct(const CompileContext& context);
Product GemmProduct(const CompileContext& context);
// If the batches share B and are consecutive in A, merges them into one product of more rows.
void MergeBatches(Product& product);

// All implementations, in the order in which they are tried.
std::span<const Implementation<Product>> ProductImplementations();
// Uses the first implementation that accepts the product. A is input 0 and B input 1 of the node.
StatusOr<std::unique_ptr<Kernel>> CompileProduct(Product product, const CompileContext& context);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_PRODUCT_H_
