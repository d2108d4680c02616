// The loop of quantized_sum.h, one build per instruction set.
#include <algorithm>
#include <limits>

#include "ops/quantization/quantized_sum.h"
#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/quantization/quantized_sum_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <typename Q>
void Row(const ByteSum& s, const Q* a, const Q* b, int64_t count, Q* y) {
  const hn::CappedTag<double, 8> d;
  const hn::Rebind<int32_t, decltype(d)> whole;
  const hn::Rebind<Q, decltype(d)> bytes;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto low = hn::Set(d, static_cast<double>(std::numeric_limits<Q>::lowest()));
  const auto high = hn::Set(d, static_cast<double>(std::numeric_limits<Q>::max()));
  const auto round = hn::Set(d, 6755399441055744.0);  // 1.5 · 2⁵², as in Quantize()
  const auto real = [&](const Q* from, int32_t zero) {
    const auto wide = hn::PromoteTo(whole, hn::LoadU(bytes, from));
    return hn::PromoteTo(d, hn::Sub(wide, hn::Set(whole, zero)));
  };
  const auto vector = [&](const Q* left, const Q* right, Q* to) {
    // Both products are exact.
    auto x = hn::Add(hn::Add(hn::Mul(real(left, s.a_zero), hn::Set(d, s.a_ratio)),
                             hn::Mul(real(right, s.b_zero), hn::Set(d, s.b_ratio))),
                     hn::Set(d, s.zero));
    x = hn::Min(hn::IfThenElse(hn::Gt(x, low), x, low), high);
    x = hn::Sub(hn::Add(x, round), round);
    hn::StoreU(hn::DemoteTo(bytes, hn::DemoteTo(whole, x)), bytes, to);
  };
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) vector(a + i, b + i, y + i);
  if (i == count) return;
  // The rest uses the same instructions, so that rounding does not depend on the position.
  Q left[8] = {}, right[8] = {}, to[8];
  std::copy_n(a + i, count - i, left);
  std::copy_n(b + i, count - i, right);
  vector(left, right, to);
  std::copy_n(to, count - i, y + i);
}

void Sum(const ByteSum& s, const void* a, const void* b, int64_t count, void* y) {
  if (s.is_signed) {
    Row(s, static_cast<const int8_t*>(a), static_cast<const int8_t*>(b), count,
        static_cast<int8_t*>(y));
  } else {
    Row(s, static_cast<const uint8_t*>(a), static_cast<const uint8_t*>(b), count,
        static_cast<uint8_t*>(y));
  }
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(Sum);

void SumBytes(const ByteSum& sum, const void* a, const void* b, int64_t count, void* y) {
  HWY_DYNAMIC_DISPATCH(Sum)(sum, a, b, count, y);
}

}  // namespace chairlift
#endif  // HWY_ONCE
