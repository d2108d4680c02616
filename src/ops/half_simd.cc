// Conversion of 16-bit floats, one build per instruction set.
#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/half_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/half_simd.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;

// Set if the machine itself converts float16. Highway's emulation elsewhere does not round as the
// scalar conversion does.
#define CHAIRLIFT_HAS_F16C (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3)

void WidenF16(const Float16* from, float* to, int64_t n) {
  int64_t i = 0;
#if CHAIRLIFT_HAS_F16C
  const FloatTag d;
  const hn::Rebind<hwy::float16_t, FloatTag> dh;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; i + lanes <= n; i += lanes) {
    const auto* p = reinterpret_cast<const hwy::float16_t*>(from + i);
    hn::StoreU(hn::PromoteTo(d, hn::LoadU(dh, p)), d, to + i);
  }
#endif
  for (; i < n; ++i) to[i] = static_cast<float>(from[i]);
}

void NarrowF16(const float* from, Float16* to, int64_t n) {
  int64_t i = 0;
#if CHAIRLIFT_HAS_F16C
  const FloatTag d;
  const hn::Rebind<hwy::float16_t, FloatTag> dh;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; i + lanes <= n; i += lanes) {
    auto* p = reinterpret_cast<hwy::float16_t*>(to + i);
    hn::StoreU(hn::DemoteTo(dh, hn::LoadU(d, from + i)), dh, p);
  }
#endif
  for (; i < n; ++i) to[i] = Float16(from[i]);
}

void WidenBF16(const BFloat16* from, float* to, int64_t n) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  const hn::Rebind<uint16_t, FloatTag> dh;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto bits = hn::LoadU(dh, reinterpret_cast<const uint16_t*>(from + i));
    const auto wide = hn::ShiftLeft<16>(hn::PromoteTo(du, bits));
    hn::StoreU(hn::BitCast(d, wide), d, to + i);
  }
  for (; i < n; ++i) to[i] = static_cast<float>(from[i]);
}

void NarrowBF16(const float* from, BFloat16* to, int64_t n) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  const hn::RebindToSigned<FloatTag> di;
  const hn::Rebind<uint16_t, FloatTag> dh;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, from + i);
    const auto bits = hn::BitCast(du, v);
    const auto high = hn::ShiftRight<16>(bits);
    const auto even = hn::Add(hn::And(high, hn::Set(du, 1u)), hn::Set(du, 0x7fffu));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, even));
    const auto quiet = hn::Or(high, hn::Set(du, 0x40u));
    const auto is_number = hn::RebindMask(du, hn::Eq(v, v));
    const auto result = hn::BitCast(di, hn::IfThenElse(is_number, rounded, quiet));
    hn::StoreU(hn::DemoteTo(dh, result), dh, reinterpret_cast<uint16_t*>(to + i));
  }
  for (; i < n; ++i) to[i] = BFloat16(from[i]);
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {
namespace {
HWY_EXPORT(WidenF16);
HWY_EXPORT(NarrowF16);
HWY_EXPORT(WidenBF16);
HWY_EXPORT(NarrowBF16);
}  // namespace

void WidenFloat16(const Float16* from, float* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(WidenF16)(from, to, n);
}
void NarrowFloat16(const float* from, Float16* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(NarrowF16)(from, to, n);
}
void WidenBFloat16(const BFloat16* from, float* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(WidenBF16)(from, to, n);
}
void NarrowBFloat16(const float* from, BFloat16* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(NarrowBF16)(from, to, n);
}

}  // namespace chairlift
#endif  // HWY_ONCE
