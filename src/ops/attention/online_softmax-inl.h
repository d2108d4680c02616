// The softmax of a row of scores in blocks of keys. When a later block raises the maximum, the
// running maximum and sum are corrected (sources in attention_kernel.h). Kernels that use this, and
// add products in the same order, give bit-identical answers. Included once per instruction set
// from *_simd.cc files.
#if defined(CHAIRLIFT_OPS_ATTENTION_ONLINE_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CHAIRLIFT_OPS_ATTENTION_ONLINE_SOFTMAX_INL_H_
#undef CHAIRLIFT_OPS_ATTENTION_ONLINE_SOFTMAX_INL_H_
#else
#define CHAIRLIFT_OPS_ATTENTION_ONLINE_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {

// State of one query over the blocks so far.
struct RowState {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0.0f;
};

// cap · tanh(scores / cap). The scores are whole vectors, also behind `columns`.
HWY_INLINE void Cap(float cap, int64_t columns, float* scores) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const FloatVec by = hn::Set(d, cap), inverse = hn::Set(d, 1.0f / cap);
  for (int64_t i = 0; i < columns; i += lanes) {
    const FloatVec x = hn::Mul(hn::LoadU(d, scores + i), inverse);
    hn::StoreU(hn::Mul(by, VTanh(d, x)), d, scores + i);
  }
}

// Replaces the scores of a block by their exponentials relative to the running maximum. `columns`
// is a multiple of a vector. Returns the factor by which earlier sums shrink.
HWY_INLINE float Exponentials(float* scores, int64_t columns, RowState& state) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec most = hn::Set(d, state.max);
  for (int64_t i = 0; i < columns; i += lanes) most = hn::Max(most, hn::LoadU(d, scores + i));
  const float max = hn::GetLane(hn::MaxOfLanes(d, most));
  if (max == -std::numeric_limits<float>::infinity()) {
    for (int64_t i = 0; i < columns; ++i) {  // no key so far, or NaN, which the maximum may lose
      if (std::isnan(scores[i])) {
        state.sum = scores[i];
      } else {
        scores[i] = 0.0f;
      }
    }
    return 1.0f;
  }
  const FloatVec shift = hn::Set(d, max);
  const FloatVec least = hn::Set(d, -87.3365402f);
  FloatVec sum = hn::Zero(d);
  for (int64_t i = 0; i < columns; i += lanes) {
    const FloatVec x = hn::Sub(hn::LoadU(d, scores + i), shift);
    const FloatVec e = hn::IfThenZeroElse(hn::Lt(x, least), VExpInRange(d, x));
    hn::StoreU(e, d, scores + i);
    sum = hn::Add(sum, e);
  }
  const float shrink = std::exp(state.max - max);
  state.sum = state.sum * shrink + hn::GetLane(hn::SumOfLanes(d, sum));
  state.max = max;
  return shrink;
}

HWY_INLINE void Multiply(float* row, int64_t n, float by) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const FloatVec factor = hn::Set(d, by);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, row + i), factor), d, row + i);
  }
  for (; i < n; ++i) row[i] *= by;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#endif  // CHAIRLIFT_OPS_ATTENTION_ONLINE_SOFTMAX_INL_H_
