// The kernel of few_outputs.h, one build per instruction set.
#include <algorithm>

#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/few_outputs_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/linear/activation-inl.h"
#include "ops/linear/few_outputs.h"
#include "ops/linear/gemm_tile-inl.h"
#include "ops/linear/window_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {

// Adds one block's contribution to the sums of kCount adjacent outputs, one vector each.
template <int kCount>
HWY_NOINLINE void AddBlock(const WindowRows& s, const Inputs& in, const float* HWY_RESTRICT w,
                           Met ys, int64_t top, float* HWY_RESTRICT sums_at) {
  const int64_t step = s.x.stride * in.unit, hop = s.x.dilation * in.unit;
  const int64_t down = s.y.dilation * in.pitch;
  V sums[kCount];
  CHAIRLIFT_UNROLL
  for (int i = 0; i < kCount; ++i) sums[i] = hn::LoadU(kD, sums_at + i * kLanes);
  const float* line = in.rows + (top + ys.begin * s.y.dilation - in.first) * in.pitch;
  const float* weights = w + ys.begin * s.x.taps * s.block;
  for (int64_t ty = ys.begin; ty < ys.end; ++ty, line += down) {
    const float* from = line;
    for (int64_t tx = 0; tx < s.x.taps; ++tx, from += hop, weights += s.block) {
      const V weight = hn::LoadU(kD, weights);
      CHAIRLIFT_UNROLL
      for (int i = 0; i < kCount; ++i) {
        sums[i] = hn::MulAdd(hn::LoadU(kD, from + i * step), weight, sums[i]);
      }
    }
  }
  CHAIRLIFT_UNROLL
  for (int i = 0; i < kCount; ++i) hn::StoreU(sums[i], kD, sums_at + i * kLanes);
}

// A row of outputs, whose end may be less than a vector.
void ActivateRow(const Activation& f, int64_t size, float* y) {
  const V alpha = hn::Set(kD, f.alpha), beta = hn::Set(kD, f.beta);
  const auto lanes = static_cast<int64_t>(kLanes);
  for (int64_t i = 0; i < size; i += lanes) {
    float rest[kLanes] = {};
    const int64_t count = std::min(lanes, size - i);
    std::copy_n(y + i, count, rest);
    hn::StoreU(VectorActivate(kD, f.kind, alpha, beta, hn::LoadU(kD, rest)), kD, rest);
    std::copy_n(rest, count, y + i);
  }
}

void FewRows(const FewOutputs& s, const float* x, const float* w, const float* bias,
             const float* residual, int64_t first, int64_t last, float* y, float* scratch) {
  using Fn = decltype(&AddBlock<1>);
  static constexpr Fn kByCount[WindowRows::kMaxOutputs] = {AddBlock<1>, AddBlock<2>, AddBlock<3>,
                                                           AddBlock<4>, AddBlock<5>, AddBlock<6>,
                                                           AddBlock<7>, AddBlock<8>};
  const WindowRows& rows = s.rows;
  const int64_t spans = OutputSpans(rows), filter = rows.Taps() * rows.block;
  const int64_t sums_size = WindowRows::kMaxOutputs * static_cast<int64_t>(kLanes);
  float* const edges = scratch + s.out_channels * WindowRows::kMaxOutputs * rows.block;
  for (int64_t oy = first; oy < last; ++oy) {
    const int64_t top = oy * rows.y.stride - rows.y.pad;
    const Met ys = Meets(rows.y, top);
    for (int64_t i = 0; i < spans; ++i) {
      const OutputSpan span = SpanAt(rows, i, spans);
      std::fill_n(scratch, s.out_channels * sums_size, 0.0f);
      for (int64_t b = 0; b < s.blocks; ++b) {
        for (int lane = 0; lane < rows.block; lane += static_cast<int>(kLanes)) {
          const Inputs in = InputsOf(rows, span, x + b * rows.InPlane() + lane, oy, oy + 1, edges);
          for (int64_t o = 0; o < s.out_channels; ++o) {
            kByCount[span.count - 1](rows, in, w + (o * s.blocks + b) * filter + lane, ys, top,
                                     scratch + o * sums_size);
          }
        }
      }
      for (int64_t o = 0; o < s.out_channels; ++o) {
        const int64_t at = o * s.OutPlane() + oy * rows.x.out + span.first;
        for (int64_t k = 0; k < span.count; ++k) {
          const V sums = hn::LoadU(kD, scratch + o * sums_size + k * static_cast<int64_t>(kLanes));
          float sum = hn::GetLane(hn::SumOfLanes(kD, sums));
          if (bias != nullptr) sum += bias[o];
          if (residual != nullptr) sum += residual[at + k];
          y[at + k] = sum;
        }
      }
    }
    if (s.activation.kind == ActivationKind::kNone) continue;
    for (int64_t o = 0; o < s.out_channels; ++o) {
      ActivateRow(s.activation, rows.x.out, y + o * s.OutPlane() + oy * rows.x.out);
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(FewRows);

void FewOutputsRows(const FewOutputs& shape, const float* x, const float* w, const float* bias,
                    const float* residual, int64_t first, int64_t last, float* y, float* scratch) {
  HWY_DYNAMIC_DISPATCH(FewRows)(shape, x, w, bias, residual, first, last, y, scratch);
}

}  // namespace chairlift
#endif  // HWY_ONCE
