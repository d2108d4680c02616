// Vectorised folds of float32 rows and columns.
//
// Sums are computed in float over parts of at most 8,192 elements (rows) or 128 rows (columns) and
// in double across them. Maxima and minima are NaN if an element is.
#ifndef CHAIRLIFT_OPS_REDUCTION_FOLD_SIMD_H_
#define CHAIRLIFT_OPS_REDUCTION_FOLD_SIMD_H_

#include <cstdint>

namespace chairlift {

enum class FloatFold {
  kSum,
  kSumAbs,
  kSumSquare,
  kSumFrom,  // of x - shift
  kSumExp,   // of exp(x - shift)
  kMax,
  kMin,
};

inline constexpr int64_t kFoldColumns = 64;

struct FoldFns {
  // The fold of x[0..n), n > 0.
  double (*row)(const float* x, int64_t n, float shift);
  // Folds x[r * stride + c] over r into accumulators[c], for c < cols <= kFoldColumns. `shift` has
  // cols elements; null if the fold has no shift.
  void (*columns)(const float* x, int64_t rows, int64_t stride, int64_t cols, const float* shift,
                  double* accumulators);
  double start;  // of an accumulator
};
FoldFns FindFold(FloatFold op);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_REDUCTION_FOLD_SIMD_H_
