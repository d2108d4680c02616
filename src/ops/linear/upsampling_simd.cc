// The kernel of upsampling.h, one build per instruction set.
#include <algorithm>

#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/upsampling_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/linear/activation-inl.h"
#include "ops/linear/gemm_tile-inl.h"
#include "ops/linear/packed_gemm.h"
#include "ops/linear/upsampling.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {

// Writes columns [column, end) of `results`, a panel of products [pixels, out_channels · taps],
// with their bias and activation, to their places in the row-major image `y`.
void Scatter(const Upsampling& s, float* results, int64_t column, int64_t first, int64_t pixels,
             const float* bias, float* y) {
  const V alpha = hn::Set(kD, s.activation.alpha), beta = hn::Set(kD, s.activation.beta);
  const int64_t end = std::min(kGemmPanel, s.out_channels * s.Taps() - column);
  for (int64_t c = 0; c < end; c += kLanes) {
    HWY_ALIGN float biases[hn::MaxLanes(kD)] = {};
    for (int64_t i = 0; bias != nullptr && i < std::min<int64_t>(kLanes, end - c); ++i) {
      biases[i] = bias[(column + c + i) / s.Taps()];
    }
    const V b = hn::Load(kD, biases);
    for (int64_t p = 0; p < pixels; ++p) {
      float* sum = results + p * kGemmPanel + c;
      hn::StoreU(VectorActivate(kD, s.activation.kind, alpha, beta, hn::Add(hn::LoadU(kD, sum), b)),
                 kD, sum);
    }
  }
  const int64_t out_width = s.width * s.factor_x;
  for (int64_t c = 0; c < end; ++c) {
    const int64_t tap = (column + c) % s.Taps();
    float* to = y + (column + c) / s.Taps() * s.height * s.width * s.Taps() +
                tap / s.factor_x * out_width + tap % s.factor_x;
    int64_t row = first / s.width, x = first % s.width;
    for (int64_t p = 0; p < pixels; ++p) {
      to[row * s.factor_y * out_width + x * s.factor_x] = results[p * kGemmPanel + c];
      if (++x == s.width) {
        x = 0;
        ++row;
      }
    }
  }
}

void Upsample(const Upsampling& s, const float* x, int64_t first, int64_t pixels,
              const float* packed, int64_t panel_begin, int64_t panel_end, const float* bias,
              float* y, float* scratch) {
  const int64_t size = s.height * s.width, stride = s.channels + Upsampling::kPixelPad;
  for (int64_t c = 0; c < s.channels; c += kLanes) {
    const float* from = x + (c / s.block * size + first) * s.block + c % s.block;
    for (int64_t p = 0; p < pixels; ++p) {
      hn::StoreU(hn::LoadU(kD, from + p * s.block), kD, scratch + p * stride + c);
    }
  }
  float* results = scratch + pixels * stride;
  const V alpha = hn::Set(kD, s.activation.alpha), beta = hn::Set(kD, s.activation.beta);
  const int64_t tap_panels = GemmPanels(s.out_channels);
  const int64_t tiles = (pixels + kMaxRows - 1) / kMaxRows;
  const int64_t out_width = s.width * s.factor_x, out_size = size * s.Taps();
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t p0 = pixels * t / tiles, p1 = pixels * (t + 1) / tiles;
      kPanelTable[p1 - p0 - 1](scratch + p0 * stride, static_cast<size_t>(stride),
                               packed + panel * s.channels * kGemmPanel, results + p0 * kGemmPanel,
                               kGemmPanel, s.channels, false, nullptr, {});
    }
    if (!s.blocked_out) {
      Scatter(s, results, panel * kGemmPanel, first, pixels, bias, y);
      continue;
    }
    const int64_t tap = panel / tap_panels, channel = panel % tap_panels * kGemmPanel;
    const int64_t end = std::min(channel + kGemmPanel, s.out_channels);
    for (int64_t c = channel; c < end; c += kLanes) {
      const V b = bias == nullptr ? hn::Zero(kD) : hn::LoadU(kD, bias + c);
      float* plane = y + c / s.block * out_size * s.block + c % s.block;
      int64_t row = first / s.width, column = first % s.width;
      for (int64_t p = 0; p < pixels; ++p) {
        const int64_t at = (row * s.factor_y + tap / s.factor_x) * out_width + column * s.factor_x +
                           tap % s.factor_x;
        const V sum = hn::Add(hn::LoadU(kD, results + p * kGemmPanel + c - channel), b);
        hn::StoreU(VectorActivate(kD, s.activation.kind, alpha, beta, sum), kD,
                   plane + at * s.block);
        if (++column == s.width) {
          column = 0;
          ++row;
        }
      }
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(Upsample);

void UpsamplePixels(const Upsampling& shape, const float* x, int64_t first, int64_t pixels,
                    const float* packed, int64_t panel_begin, int64_t panel_end, const float* bias,
                    float* y, float* scratch) {
  HWY_DYNAMIC_DISPATCH(Upsample)
  (shape, x, first, pixels, packed, panel_begin, panel_end, bias, y, scratch);
}

}  // namespace chairlift
#endif  // HWY_ONCE
