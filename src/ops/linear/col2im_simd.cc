// The loops of col2im.h, one build per instruction set.
#include <algorithm>

#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/col2im_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/linear/activation-inl.h"
#include "ops/linear/col2im.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;

// Input pixels [begin, end) whose output pixels exist.
struct Range {
  int64_t begin, end;
};

int64_t CeilDiv(int64_t a, int64_t b) { return a > 0 ? (a + b - 1) / b : -(-a / b); }

Range RangeOf(const Col2imRow& row, int64_t tap, int64_t first, int64_t pixels) {
  const int64_t shift = tap * row.dilation - row.pad;
  return {std::max(first, CeilDiv(-shift, row.stride)),
          std::min(first + pixels, CeilDiv(row.out - shift, row.stride))};
}

void AddTap(const Col2imRow& row, int64_t tap, const float* products, int64_t first, Range range,
            float* y) {
  const int64_t shift = tap * row.dilation - row.pad;
  const float* const from = products - first;
  if (row.stride != 1) {
    for (int64_t i = range.begin; i < range.end; ++i) y[i * row.stride + shift] += from[i];
    return;
  }
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  float* const to = y + shift;
  int64_t i = range.begin;
  for (; i + lanes <= range.end; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, from + i)), d, to + i);
  }
  for (; i < range.end; ++i) to[i] += from[i];
}

// Taps `tap` and tap + 1 at stride 2, whose output pixels alternate.
void AddTwoTaps(const Col2imRow& row, int64_t tap, const float* products, int64_t tap_stride,
                int64_t first, int64_t pixels, float* y) {
  const Range one = RangeOf(row, tap, first, pixels), two = RangeOf(row, tap + 1, first, pixels);
  const Range both{std::max(one.begin, two.begin), std::min(one.end, two.end)};
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  float* const to = y + tap - row.pad;
  const float *const a = products - first, *const b = a + tap_stride;
  int64_t i = both.begin;
  for (; i + lanes <= both.end; i += lanes) {
    hn::Vec<FloatTag> even, odd;
    hn::LoadInterleaved2(d, to + 2 * i, even, odd);
    hn::StoreInterleaved2(hn::Add(even, hn::LoadU(d, a + i)), hn::Add(odd, hn::LoadU(d, b + i)), d,
                          to + 2 * i);
  }
  const int64_t done = std::max(i, both.begin);
  const auto rest = [&](int64_t t, const float* of_tap, Range range) {
    AddTap(row, t, of_tap, first, {range.begin, std::min(range.end, both.begin)}, y);
    AddTap(row, t, of_tap, first, {std::max(range.begin, done), range.end}, y);
  };
  rest(tap, products, one);
  rest(tap + 1, products + tap_stride, two);
}

}  // namespace

void AddAllTaps(const Col2imRow& row, const float* products, int64_t tap_stride, int64_t first,
                int64_t pixels, float* y) {
  int64_t tap = 0;
  if (row.stride == 2 && row.dilation == 1) {
    for (; tap + 2 <= row.taps; tap += 2) {
      AddTwoTaps(row, tap, products + tap * tap_stride, tap_stride, first, pixels, y);
    }
  }
  for (; tap < row.taps; ++tap) {
    AddTap(row, tap, products + tap * tap_stride, first, RangeOf(row, tap, first, pixels), y);
  }
}

void ActivateRow(const Activation& activation, float* y, int64_t count) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto alpha = hn::Set(d, activation.alpha), beta = hn::Set(d, activation.beta);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(VectorActivate(d, activation.kind, alpha, beta, hn::LoadU(d, y + i)), d, y + i);
  }
  if (i == count) return;
  HWY_ALIGN float rest[HWY_MAX_BYTES / sizeof(float)] = {};
  std::copy(y + i, y + count, rest);
  hn::Store(VectorActivate(d, activation.kind, alpha, beta, hn::Load(d, rest)), d, rest);
  std::copy(rest, rest + (count - i), y + i);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(AddAllTaps);
HWY_EXPORT(ActivateRow);

void AddTaps(const Col2imRow& row, const float* products, int64_t tap_stride, int64_t first,
             int64_t pixels, float* y) {
  HWY_DYNAMIC_DISPATCH(AddAllTaps)(row, products, tap_stride, first, pixels, y);
}

void ActivateInPlace(const Activation& activation, float* y, int64_t count) {
  HWY_DYNAMIC_DISPATCH(ActivateRow)(activation, y, count);
}

}  // namespace chairlift
#endif  // HWY_ONCE
