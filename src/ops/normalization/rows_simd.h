// Vectorised float32 kernels over rows and columns: softmax, layer normalisation, affine maps.
//
// Outputs may be the memory of x (or residual).
//
// Values may be large compared with their differences, like 16-bit sound and time stamps. So a mean
// is subtracted before anything is multiplied: x·a + (b − mean·a) in float would lose what x − mean
// keeps.
#ifndef CHAIRLIFT_OPS_NORMALIZATION_ROWS_SIMD_H_
#define CHAIRLIFT_OPS_NORMALIZATION_ROWS_SIMD_H_

#include <cstdint>

namespace chairlift {

// y[r, :] = (s - mean(s)) / sqrt(var(s) + epsilon) * scale + shift, with s = x[r, :] + residual[r,
// :] + bias, for rows of n elements. Not `centred`: the mean counts as 0, also in var(s).
struct LayerNormRows {
  const float* x;
  const float* residual;  // [rows, n], or null
  const float* bias;      // [n], or null
  const float* scale;     // [n]
  const float* shift;     // [n], or null
  float* y;
  float* sum;      // s, or null
  float* mean;     // [rows], or null
  float* inv_std;  // [rows], 1 / sqrt(var + epsilon), or null
  int64_t rows;
  int64_t n;
  float epsilon;
  bool centred = true;
};

// Sums over a row, in float over parts of at most 1,024 elements and in double across them.
struct RowMoments {
  double sum, squares;
};

// Columns that softmax_columns() processes together: best called for a multiple of them.
inline constexpr int64_t kSoftmaxColumns = 256;

struct RowFns {
  // Over each of `rows` rows of n.
  void (*softmax)(const float* x, float* y, int64_t rows, int64_t n);
  void (*log_softmax)(const float* x, float* y, int64_t rows, int64_t n);
  // Over the first dimension of [n, inner], columns [first, last).
  void (*softmax_columns)(const float* x, float* y, int64_t n, int64_t inner, int64_t first,
                          int64_t last);
  void (*log_softmax_columns)(const float* x, float* y, int64_t n, int64_t inner, int64_t first,
                              int64_t last);
  void (*layer_norm)(const LayerNormRows& rows);
  // Σ (x − from) and Σ (x − from)²
  RowMoments (*moments)(const float* x, int64_t n, float from);
  // y = a (x − mean) + b
  void (*affine)(const float* x, float* y, int64_t n, float mean, float a, float b);
  // y[r, c] = a[c] (x[r, c] − mean[c]) + b[c]
  void (*affine_columns)(const float* x, float* y, int64_t rows, int64_t n, const float* mean,
                         const float* a, const float* b);
};
RowFns FindRowFns();

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_NORMALIZATION_ROWS_SIMD_H_
