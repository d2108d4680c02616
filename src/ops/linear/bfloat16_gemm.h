// Matrix products with bfloat16 operands and float32 sums: C = f(A·B + bias + residual). A is
// float32 and rounded here; B is constant, rounded and packed once.
//
// The kernel that a machine uses decides how B is packed. kAmx and kPortable use tiles. Each panel
// of kGemmPanel columns is ceil(K / 32) times two tiles of [16 pairs of K, 16 columns, 2], with
// zeros past K and N. The format of kRounded is that of packed_gemm.h: float32, with rounded
// values.
//
// With tiles, the order of an element's sum depends on K alone. So a row's result has the same bits
// in any batch. With kRounded it may depend on the number of rows, as in PackedGemm().
// The error is at most (2^-7 + 2^-16 + K · 2^-23) · Σ|A·B| while no value is near float32's limits.
#ifndef CHAIRLIFT_OPS_LINEAR_BFLOAT16_GEMM_H_
#define CHAIRLIFT_OPS_LINEAR_BFLOAT16_GEMM_H_

#include <cstdint>
#include <span>

#include "chairlift/tensor.h"
#include "ops/linear/packed_gemm.h"

namespace chairlift {

enum class BFloat16Kernel : uint8_t {
  kAmx,       // needs GrantTiles()
  kPortable,  // the arithmetic of kAmx in plain code: for tests
  kRounded,   // float32 products of rounded operands
};
// The fastest one on this machine.
BFloat16Kernel MachineBFloat16Kernel();
// A name for people to read, such as "AMX".
const char* BFloat16KernelName(BFloat16Kernel kernel);

// Elements of packed B, and their type.
int64_t BFloat16GemmSize(BFloat16Kernel kernel, int64_t k, int64_t n);
DType BFloat16GemmType(BFloat16Kernel kernel);
// Packs scale · B, where B(k, n) is b[k · k_stride + n · n_stride].
void PackBFloat16Weights(BFloat16Kernel kernel, const float* b, int64_t k_stride, int64_t n_stride,
                         int64_t k, int64_t n, float scale, void* packed);

// A: element (m, k) at a[m · row_stride + k · k_stride].
struct BFloat16Rows {
  const float* a;
  int64_t row_stride;
  int64_t k_stride;
  int64_t m;
  int64_t k;
};
// Panels [first, last) of one product's columns. C: element (m, n) at m · c_stride + n.
struct BFloat16Product {
  const void* packed;
  int64_t n;
  int64_t first, last;
  float* c;
  int64_t c_stride;
  GemmEpilogue epilogue;
};

// Computes all `products`, which share the rows of A. No C may overlap A or any packed B. Runs on
// the calling thread.
void BFloat16Gemm(BFloat16Kernel kernel, const BFloat16Rows& rows,
                  std::span<const BFloat16Product> products);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_BFLOAT16_GEMM_H_
