// The kernel of depthwise.h, one build per instruction set. Several adjacent outputs are summed in
// registers together. So a tap's weights are read once for all of them, and the other operand of
// each multiplication comes from memory.
#include <algorithm>

#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/depthwise_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/linear/activation-inl.h"
#include "ops/linear/depthwise.h"
#include "ops/linear/gemm_tile-inl.h"
#include "ops/linear/window_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {

// kCount adjacent outputs at `y`, whose taps along x are all in `in`, in rows [first, last); one
// vector each.
template <int kCount>
HWY_NOINLINE void Outputs(const WindowRows& s, const Inputs& in, const float* HWY_RESTRICT w,
                          const float* bias, const float* residual, int64_t first, int64_t last,
                          float* HWY_RESTRICT y) {
  const int64_t block = s.block, step = s.x.stride * in.unit, hop = s.x.dilation * in.unit;
  const int64_t down = s.y.dilation * in.pitch, row = s.x.out * block;
  const V start = bias == nullptr ? hn::Zero(kD) : hn::LoadU(kD, bias);
  for (int64_t oy = first; oy < last; ++oy) {
    V sums[kCount];
    CHAIRLIFT_UNROLL
    for (int i = 0; i < kCount; ++i) sums[i] = start;
    const int64_t top = oy * s.y.stride - s.y.pad;
    const Met ys = Meets(s.y, top);
    const float* line = in.rows + (top + ys.begin * s.y.dilation - in.first) * in.pitch;
    const float* weights = w + ys.begin * s.x.taps * block;
    for (int64_t ty = ys.begin; ty < ys.end; ++ty, line += down) {
      const float* from = line;
      for (int64_t tx = 0; tx < s.x.taps; ++tx, from += hop, weights += block) {
        const V weight = hn::LoadU(kD, weights);
        CHAIRLIFT_UNROLL
        for (int i = 0; i < kCount; ++i) {
          sums[i] = hn::MulAdd(hn::LoadU(kD, from + i * step), weight, sums[i]);
        }
      }
    }
    if (residual != nullptr) {
      CHAIRLIFT_UNROLL
      for (int i = 0; i < kCount; ++i) {
        sums[i] = hn::Add(sums[i], hn::LoadU(kD, residual + oy * row + i * block));
      }
    }
    CHAIRLIFT_UNROLL
    for (int i = 0; i < kCount; ++i) hn::StoreU(sums[i], kD, y + oy * row + i * block);
  }
}

// Works on sums in memory, because activations that call functions would spill registers.
void Activate(const Activation& f, int64_t size, float* y) {
  const V alpha = hn::Set(kD, f.alpha), beta = hn::Set(kD, f.beta);
  for (int64_t i = 0; i < size; i += static_cast<int64_t>(kLanes)) {
    hn::StoreU(VectorActivate(kD, f.kind, alpha, beta, hn::LoadU(kD, y + i)), kD, y + i);
  }
}

void Rows(const Depthwise& s, const float* x, const float* w, const float* bias,
          const float* residual, int64_t first, int64_t last, float* y, float* scratch) {
  using Fn = decltype(&Outputs<1>);
  static constexpr Fn kByCount[WindowRows::kMaxOutputs] = {Outputs<1>, Outputs<2>, Outputs<3>,
                                                           Outputs<4>, Outputs<5>, Outputs<6>,
                                                           Outputs<7>, Outputs<8>};
  const WindowRows& rows = s.rows;
  const int64_t spans = OutputSpans(rows), at_once = s.RowsAtOnce();
  for (int64_t oy = first; oy < last; oy += at_once) {
    const int64_t end = std::min(last, oy + at_once);
    for (int64_t i = 0; i < spans; ++i) {
      const OutputSpan span = SpanAt(rows, i, spans);
      for (int lane = 0; lane < rows.block; lane += static_cast<int>(kLanes)) {
        const int64_t at = span.first * rows.block + lane;
        kByCount[span.count - 1](rows, InputsOf(rows, span, x + lane, oy, end, scratch), w + lane,
                                 bias == nullptr ? nullptr : bias + lane,
                                 residual == nullptr ? nullptr : residual + at, oy, end, y + at);
      }
    }
    if (s.activation.kind != ActivationKind::kNone) {
      const int64_t row = rows.x.out * rows.block;
      Activate(s.activation, (end - oy) * row, y + oy * row);
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(Rows);

void DepthwiseRows(const Depthwise& shape, const float* x, const float* w, const float* bias,
                   const float* residual, int64_t first, int64_t last, float* y, float* scratch) {
  HWY_DYNAMIC_DISPATCH(Rows)(shape, x, w, bias, residual, first, last, y, scratch);
}

}  // namespace chairlift
#endif  // HWY_ONCE
