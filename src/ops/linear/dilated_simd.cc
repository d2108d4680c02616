// The kernel of dilated.h, one build per instruction set.
#include <algorithm>

#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/dilated_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/linear/activation-inl.h"
#include "ops/linear/dilated.h"
#include "ops/linear/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {

// Channels together, so that a panel's slice stays in the first-level cache.
constexpr int64_t kChannelsAtOnce = 384;

void Gather(const Dilated& s, const float* x, int64_t first, int64_t last, float* pixels) {
  const int64_t block = s.rows.block, stride = s.PixelStride(), plane = s.Pixels() * block;
  for (int64_t b = 0; b < s.Blocks(); ++b) {
    for (int64_t lane = 0; lane < block; lane += kLanes) {
      const float* from = x + b * plane + lane;
      float* to = pixels + b * block + lane;
      for (int64_t p = first; p < last; ++p) {
        hn::StoreU(hn::LoadU(kD, from + p * block), kD, to + p * stride);
      }
    }
  }
}

// Outputs o of [first, last) whose tap `tap` meets the input.
struct OutputRange {
  int64_t first, last;
};
OutputRange Meeting(const WindowRows::Axis& a, int64_t tap, int64_t first, int64_t last) {
  const int64_t at = tap * a.dilation - a.pad;
  const int64_t begin = std::max(first, -at);
  return {begin, std::max(begin, std::min(last, a.in - at))};
}

void AddTaps(const Dilated& s, const float* pixels, const float* packed, int64_t panel,
             int64_t first, int64_t last, float* sums) {
  const WindowRows& w = s.rows;
  const int64_t stride = s.PixelStride(), panels = GemmPanels(s.out_channels);
  const int64_t slices = (s.channels + kChannelsAtOnce - 1) / kChannelsAtOnce;
  std::fill_n(sums, (last - first) * w.x.out * kGemmPanel, 0.0f);
  for (int64_t slice = 0; slice < slices; ++slice) {
    const int64_t k0 = s.channels * slice / slices, k1 = s.channels * (slice + 1) / slices;
    for (int64_t tap = 0; tap < w.Taps(); ++tap) {
      const int64_t ty = tap / w.x.taps, tx = tap % w.x.taps;
      const OutputRange ys = Meeting(w.y, ty, first, last), xs = Meeting(w.x, tx, 0, w.x.out);
      const int64_t run = xs.last - xs.first;
      const int64_t tiles = (run + kMaxRows - 1) / kMaxRows;
      const float* weights = packed + ((tap * panels + panel) * s.channels + k0) * kGemmPanel;
      for (int64_t oy = ys.first; oy < ys.last; ++oy) {
        const int64_t iy = oy + ty * w.y.dilation - w.y.pad;
        const int64_t ix = xs.first + tx * w.x.dilation - w.x.pad;
        const float* from = pixels + (iy * w.x.in + ix) * stride + k0;
        float* to = sums + ((oy - first) * w.x.out + xs.first) * kGemmPanel;
        for (int64_t tile = 0; tile < tiles; ++tile) {
          const int64_t r0 = run * tile / tiles, r1 = run * (tile + 1) / tiles;
          kPanelTable[static_cast<size_t>(r1 - r0 - 1)](
              from + r0 * stride, static_cast<size_t>(stride), weights, to + r0 * kGemmPanel,
              kGemmPanel, k1 - k0, true, nullptr, {});
        }
      }
    }
  }
}

void TapRows(const Dilated& s, const float* pixels, const float* packed, int64_t panel,
             const float* bias, const float* residual, int64_t first, int64_t last, float* sums,
             float* y) {
  AddTaps(s, pixels, packed, panel, first, last, sums);
  const V alpha = hn::Set(kD, s.activation.alpha), beta = hn::Set(kD, s.activation.beta);
  const int64_t block = s.rows.block, channel = panel * kGemmPanel;
  // Whole blocks, including the padding channels of the last.
  const int64_t stored = (s.out_channels + block - 1) / block * block;
  const int64_t end = std::min(channel + kGemmPanel, stored), row = s.rows.x.out;
  for (int64_t c = channel; c < end; c += kLanes) {
    const auto there = LanesBefore(s.out_channels - c);
    const V b = bias == nullptr ? hn::Zero(kD) : hn::LoadU(kD, bias + c);
    const int64_t at = c / block * s.OutPlane() + c % block;
    for (int64_t p = first * row; p < last * row; ++p) {
      const int64_t to = at + p * block;
      V sum = hn::Add(hn::LoadU(kD, sums + (p - first * row) * kGemmPanel + c - channel), b);
      if (residual != nullptr) sum = hn::Add(sum, hn::LoadU(kD, residual + to));
      sum = VectorActivate(kD, s.activation.kind, alpha, beta, sum);
      hn::StoreU(hn::IfThenElseZero(there, sum), kD, y + to);
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(Gather);
HWY_EXPORT(TapRows);

void GatherPixels(const Dilated& shape, const float* x, int64_t first, int64_t last,
                  float* pixels) {
  HWY_DYNAMIC_DISPATCH(Gather)(shape, x, first, last, pixels);
}

void DilatedRows(const Dilated& shape, const float* pixels, const float* packed, int64_t panel,
                 const float* bias, const float* residual, int64_t first, int64_t last, float* sums,
                 float* y) {
  HWY_DYNAMIC_DISPATCH(TapRows)
  (shape, pixels, packed, panel, bias, residual, first, last, sums, y);
}

}  // namespace chairlift
#endif  // HWY_ONCE
