// Single-precision matrix products with a packed right-hand side: C = f(A·B + bias + residual).
//
// B [K, N] is packed once into panels of kGemmPanel columns: element (k, n) is at
//   (n / 32) · K · 32 + k · 32 + n % 32;
// columns past N are zero. The form is the same for every instruction set and every M, so one
// packed copy serves all shape classes. Everything here runs on the calling thread; callers divide
// C by panels or by rows.
#ifndef CHAIRLIFT_OPS_LINEAR_PACKED_GEMM_H_
#define CHAIRLIFT_OPS_LINEAR_PACKED_GEMM_H_

#include <cstdint>

#include "base/status.h"
#include "chairlift/tensor.h"
#include "ops/linear/activation.h"

namespace chairlift {

inline constexpr int64_t kGemmPanel = 32;
// If the last panel has at most this many columns, its second half is not computed.
inline constexpr int64_t kHalfPanel = kGemmPanel / 2;
// Rows that share one pass over B; a good number of rows for one worker's part.
inline constexpr int64_t kGemmRowBlock = 140;

inline int64_t GemmPanels(int64_t n) { return (n + kGemmPanel - 1) / kGemmPanel; }
// Floats of packed B.
inline int64_t PackedGemmSize(int64_t k, int64_t n) { return k * GemmPanels(n) * kGemmPanel; }

// Packs panels [first, last) of scale · B, where B(k, n) is b[k · k_stride + n · n_stride].
void PackGemmPanels(const float* b, int64_t k_stride, int64_t n_stride, int64_t k, int64_t n,
                    int64_t first, int64_t last, float scale, float* packed);
// Packs all of it into a new tensor, on huge pages if the system grants them.
Tensor PackGemmWeights(const float* b, int64_t k_stride, int64_t n_stride, int64_t k, int64_t n,
                       float scale = 1.0f);

// Applied to A·B before it is stored.
struct GemmEpilogue {
  const float* bias = nullptr;      // [N], or null
  const float* residual = nullptr;  // element (m, n) at m · residual_stride + n, or null
  int64_t residual_stride = 0;
  Activation activation;
};

// A: element (m, k) at a[m · a_row_stride + k · a_k_stride]. C: element (m, n) at m · c_stride + n.
struct GemmOperands {
  const float* a;
  int64_t a_row_stride;
  int64_t a_k_stride;
  const float* packed;
  float* c;
  int64_t c_stride;
};

// Whether PackedGemm() copies A before it multiplies, once per call. It does if rows of A are not
// contiguous. It also does if the rows of a register tile would evict each other. They do if they
// are in fewer than four of the 64 sets of a first-level cache.
bool PacksRows(int64_t m, int64_t a_row_stride, int64_t a_k_stride);

// Rows [0, m) of panels [first, last) of C. C must not overlap A or B.
void PackedGemm(const GemmOperands& operands, int64_t m, int64_t k, int64_t n, int64_t first,
                int64_t last, const GemmEpilogue& epilogue);

// Applies an epilogue to `columns` columns of C from `column` on, which already hold A·B.
void FinishGemm(float* c, int64_t c_stride, int64_t rows, int64_t column, int64_t columns,
                const GemmEpilogue& epilogue);

// Writes f(sums + bias + residual) of whole panels to C; rows of `sums` are kGemmPanel apart.
using FinishPanel = void (*)(const float* sums, float* c, int64_t c_stride, int64_t rows,
                             const GemmEpilogue& epilogue);
// The function for all epilogues with this activation that have the same operands (bias, residual).
FinishPanel PanelFinisher(const GemmEpilogue& epilogue);
// Writes f(sums + bias + residual) to C; the epilogue starts at the first of these columns.
void FinishSums(const float* sums, int64_t sums_stride, float* c, int64_t c_stride, int64_t rows,
                int64_t columns, const GemmEpilogue& epilogue);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_PACKED_GEMM_H_
