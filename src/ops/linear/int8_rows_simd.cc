// Finds the ranges of floats, and rounds floats to bytes. Both are memory-bound.
#include "ops/linear/int8_rows.h"
#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/int8_rows_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>
#include <cmath>

#include "hwy/highway.h"
#include "ops/quantization/rounding.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using ByteFloats = hn::ScalableTag<float>;

// NaN counts for neither bound. Slower than VectorRange().
FloatRange RangeWithoutNaN(const float* x, int64_t n) {
  FloatRange range{.finite = false};
  for (int64_t i = 0; i < n; ++i) {
    range.low = x[i] < range.low ? x[i] : range.low;
    range.high = x[i] > range.high ? x[i] : range.high;
  }
  return range;
}

FloatRange VectorRange(const float* x, int64_t n) {
  const ByteFloats d;
  const hn::RebindToUnsigned<ByteFloats> du;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto magnitude = hn::Set(du, 0x7fffffffU);
  auto low0 = hn::Zero(d), low1 = low0, high0 = low0, high1 = low0;
  auto most0 = hn::Zero(du), most1 = most0;  // of the bits without the sign
  const auto take = [&](const float* from, auto& low, auto& high, auto& most) HWY_ATTR {
    const auto v = hn::LoadU(d, from);
    low = hn::Min(v, low);
    high = hn::Max(v, high);
    most = hn::Max(most, hn::And(hn::BitCast(du, v), magnitude));
  };
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    take(x + i, low0, high0, most0);
    take(x + i + lanes, low1, high1, most1);
  }
  for (; i + lanes <= n; i += lanes) take(x + i, low0, high0, most0);
  FloatRange range;
  range.low = hn::GetLane(hn::MinOfLanes(d, hn::Min(low0, low1)));
  range.high = hn::GetLane(hn::MaxOfLanes(d, hn::Max(high0, high1)));
  range.finite = hn::GetLane(hn::MaxOfLanes(du, hn::Max(most0, most1))) < 0x7f800000U;
  for (; i < n; ++i) {
    range.low = std::min(range.low, x[i]);
    range.high = std::max(range.high, x[i]);
    range.finite = range.finite && std::isfinite(x[i]);
  }
  // Minima and maxima of NaN differ between instruction sets.
  return range.finite ? range : RangeWithoutNaN(x, n);
}

// Divides by the scale only if x · (1 / scale) is close to the middle of two integers. The rounding
// of the product could matter there. Product and quotient differ by less than 2⁻¹⁴ up to 255.
void VectorQuantize(const float* x, int64_t n, const ByteScale& to, uint8_t* y) {
  const ByteFloats d;
  const hn::Rebind<int32_t, ByteFloats> d32;
  const hn::Rebind<uint8_t, ByteFloats> d8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float inverse = 1.0f / to.scale;
  int64_t i = 0;
  // An inverse that is infinite or denormal is not accurate enough.
  if (std::isfinite(inverse) && inverse >= std::numeric_limits<float>::min()) {
    const auto factor = hn::Set(d, inverse), scale = hn::Set(d, to.scale);
    const auto low = hn::Set(d, -static_cast<float>(to.zero));
    const auto high = hn::Set(d, 255.0f - static_cast<float>(to.zero));
    const auto zero = hn::Set(d32, to.zero);
    const auto sure = hn::Set(d, 0.5f - 0x1p-12f);
    for (; i + lanes <= n; i += lanes) {
      const auto v = hn::LoadU(d, x + i);
      auto ratio = hn::Mul(v, factor);
      // NaN is not less than `sure` either.
      if (!hn::AllTrue(d, hn::Lt(hn::Abs(hn::Sub(ratio, hn::Round(ratio))), sure))) {
        ratio = hn::Div(v, scale);
      }
      ratio = hn::IfThenElse(hn::Gt(ratio, low), ratio, low);
      ratio = hn::IfThenElse(hn::Lt(ratio, high), ratio, high);
      hn::StoreU(hn::DemoteTo(d8, hn::Add(hn::NearestInt(ratio), zero)), d8, y + i);
    }
  }
  for (; i < n; ++i) y[i] = Quantize<uint8_t>(x[i] / to.scale, to.zero);
}

void VectorRound(const float* x, int64_t n, const ByteScale& to, int64_t y_step, uint8_t* y) {
  constexpr int64_t kStep = 64;
  const hn::CappedTag<float, 16> d;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float inverse = 1.0f / to.scale;
  const bool vanishes = !std::isfinite(inverse);  // so do all elements
  const auto factor = hn::Set(d, vanishes ? 0.0f : inverse);
  const auto zero = hn::Set(d, static_cast<float>(to.zero));
  const auto round = [&](const float* from, uint8_t* at) HWY_ATTR {
    const auto code = hn::MulAdd(hn::LoadU(d, from), factor, zero);
    hn::StoreU(hn::DemoteTo(d8, hn::NearestInt(code)), d8, at);
  };
  for (int64_t i = 0; i < n; i += kStep, y += y_step) {
    const int64_t count = std::min(kStep, n - i);
    int64_t j = 0;
    for (; j + lanes <= count; j += lanes) round(x + i + j, y + j);
    if (count == kStep) continue;
    std::fill_n(y + j, kStep - j, uint8_t{0});
    if (j == count) continue;
    float rest[16] = {};
    uint8_t codes[16];
    std::copy_n(x + i + j, count - j, rest);
    round(rest, codes);
    std::copy_n(codes, count - j, y + j);
  }
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(VectorRange);
HWY_EXPORT(VectorQuantize);
HWY_EXPORT(VectorRound);

FloatRange FloatRangeOf(const float* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(VectorRange)(x, n);
}

FloatRange UnionOf(const FloatRange& a, const FloatRange& b) {
  return {std::min(a.low, b.low), std::max(a.high, b.high), a.finite && b.finite};
}

ByteScale ByteScaleOf(const FloatRange& range) {
  ByteScale to;
  if (range.high != range.low) to.scale = (range.high - range.low) / 255.0f;
  // Bounds whose difference overflows float, for example in masks.
  if (std::isinf(to.scale)) {
    to.scale = static_cast<float>(
        (static_cast<double>(range.high) - static_cast<double>(range.low)) / 255.0);
  }
  to.zero = Quantize<uint8_t>(-range.low / to.scale, 0);
  return to;
}

void QuantizeBytes(const float* x, int64_t n, const ByteScale& scale, uint8_t* y) {
  HWY_DYNAMIC_DISPATCH(VectorQuantize)(x, n, scale, y);
}

void RoundToBytes(const float* x, int64_t n, const ByteScale& scale, int64_t y_step, uint8_t* y) {
  HWY_DYNAMIC_DISPATCH(VectorRound)(x, n, scale, y_step, y);
}

}  // namespace chairlift
#endif  // HWY_ONCE
