// float32 vector functions for Highway kernels: partial loads and stores, and transcendental
// functions. Include inside a foreach_target build, after hwy/highway.h.
#if defined(CHAIRLIFT_OPS_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CHAIRLIFT_OPS_SIMD_MATH_INL_H_
#undef CHAIRLIFT_OPS_SIMD_MATH_INL_H_
#else
#define CHAIRLIFT_OPS_SIMD_MATH_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

// Whether Min and Max are the processor's own instructions, which return the second operand if
// either is NaN. Those of scalars, and of vectors that the compiler emulates, do not.
#undef CHAIRLIFT_X86_EXTREMA
#define CHAIRLIFT_X86_EXTREMA (HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128)

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

// The first n < Lanes floats at p, followed by zeros; reads nothing past them.
HWY_INLINE FloatVec LoadPart(FloatTag d, const float* p, size_t n) {
#if HWY_MEM_OPS_MIGHT_FAULT && HWY_TARGET != HWY_AVX2
  HWY_ALIGN float lanes[hn::MaxLanes(FloatTag())] = {};
  std::memcpy(lanes, p, n * sizeof(float));
  return hn::Load(d, lanes);
#else
  return hn::MaskedLoad(hn::FirstN(d, n), d, p);
#endif
}

HWY_INLINE void StorePart(FloatVec v, FloatTag d, float* p, size_t n) {
#if HWY_MEM_OPS_MIGHT_FAULT && HWY_TARGET != HWY_AVX2
  HWY_ALIGN float lanes[hn::MaxLanes(FloatTag())];
  hn::Store(v, d, lanes);
  std::memcpy(p, lanes, n * sizeof(float));
#else
  hn::BlendedStore(v, hn::FirstN(d, n), d, p);
#endif
}

// The lanes before the count-th: none if it is negative, all if it is past the last.
HWY_INLINE auto LanesBefore(int64_t count) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  return hn::FirstN(d, static_cast<size_t>(std::clamp<int64_t>(count, 0, lanes)));
}

// Applies `f` lane by lane, for rare cases.
template <typename F>
HWY_NOINLINE FloatVec PerLane(FloatTag d, FloatVec x, F f) {
  HWY_ALIGN float lanes[hn::MaxLanes(FloatTag())];
  hn::Store(x, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = f(lanes[i]);
  return hn::Load(d, lanes);
}

// x limited from above / below; NaN stays NaN, which Min and Max do not guarantee. On x86 they
// return their second operand if either is NaN.
template <class V>
HWY_INLINE V AtMost(V x, V limit) {
#if CHAIRLIFT_X86_EXTREMA
  return hn::Min(limit, x);
#else
  return hn::IfThenElse(hn::Gt(x, limit), limit, x);
#endif
}
template <class V>
HWY_INLINE V AtLeast(V x, V limit) {
#if CHAIRLIFT_X86_EXTREMA
  return hn::Max(limit, x);
#else
  return hn::IfThenElse(hn::Lt(x, limit), limit, x);
#endif
}

// The larger (smaller) of two; NaN if either is NaN.
template <class V>
HWY_INLINE V Larger(V a, V b) {
#if CHAIRLIFT_X86_EXTREMA
  return hn::IfThenElse(hn::IsNaN(a), a, hn::Max(a, b));
#else
  return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
#endif
}
template <class V>
HWY_INLINE V Smaller(V a, V b) {
#if CHAIRLIFT_X86_EXTREMA
  return hn::IfThenElse(hn::IsNaN(a), a, hn::Min(a, b));
#else
  return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
#endif
}

// exp(x) = 2^n p(r) with n the nearest integer to x / ln 2: at most 2 ulp. The polynomial is
// XNNPACK's minimax fit of degree 5. `biased` has n in the low bits of its mantissa.
struct ExpParts {
  FloatVec p, biased;
};
HWY_INLINE ExpParts SplitExp(FloatTag d, FloatVec x) {
  // Adding 1.5 * 2^23 leaves n in the low bits of the mantissa.
  const auto magic = hn::Set(d, 12582912.0f);
  const auto biased = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const auto n = hn::Sub(biased, magic);
  auto r = hn::NegMulAdd(n, hn::Set(d, 0x1.62E400p-1f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 0x1.7F7D1Cp-20f), r);
  auto p = hn::Set(d, 0x1.0F9F9Cp-7f);
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.573A1Ap-5f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.555A80p-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.FFFDC6p-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.FFFFF6p-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  return {p, biased};
}
// For x in [-87.33, 88.37], where 2^n is a normal number, and NaN. A NaN stays one whatever its
// payload is: it is multiplied, and not an integer to add to.
HWY_INLINE FloatVec VExpInRange(FloatTag d, FloatVec x) {
  const hn::RebindToUnsigned<FloatTag> du;
  const ExpParts parts = SplitExp(d, x);
  const auto power =
      hn::Add(hn::ShiftLeft<23>(hn::BitCast(du, parts.biased)), hn::BitCast(du, hn::Set(d, 1.0f)));
  return hn::Mul(parts.p, hn::BitCast(d, power));
}
// For all x: 0 below -87.33 (where the result would be subnormal), infinity above 88.72.
HWY_INLINE FloatVec VExp(FloatTag d, FloatVec x) {
  const hn::RebindToUnsigned<FloatTag> du;
  const ExpParts parts = SplitExp(d, x);
  // n onto the exponent: it may be 128.
  const auto scaled = hn::BitCast(
      d, hn::Add(hn::BitCast(du, parts.p), hn::ShiftLeft<23>(hn::BitCast(du, parts.biased))));
  const auto y = hn::IfThenElse(hn::Le(x, hn::Set(d, 88.7228317f)), scaled, hn::Add(x, hn::Inf(d)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3365402f)), y);
}

HWY_INLINE FloatVec VLog(FloatTag d, FloatVec x) {
  const auto inf = hn::Inf(d);
  const auto zero = hn::Zero(d);
  auto y = hn::Log(d, x);
  y = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(inf), y);
  y = hn::IfThenElse(hn::Eq(x, inf), inf, y);
  return hn::IfThenElse(hn::Ge(x, zero), y, hn::NaN(d));
}

// log(1 + x) for x in [0, 1], compensating for the rounding of 1 + x.
HWY_INLINE FloatVec VLog1pUnit(FloatTag d, FloatVec x) {
  const auto one = hn::Set(d, 1.0f);
  const auto u = hn::Add(one, x);
  const auto lost = hn::Sub(x, hn::Sub(u, one));
  return hn::Add(hn::Log(d, u), hn::Div(lost, u));
}

// Highway's range reduction loses accuracy past 39000; the C library is used there.
HWY_INLINE FloatVec VSin(FloatTag d, FloatVec x) {
  if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Le(hn::Abs(x), hn::Set(d, 39000.0f))))) {
    return PerLane(d, x, [](float v) { return std::sin(v); });
  }
  return hn::Sin(d, x);
}
HWY_INLINE FloatVec VCos(FloatTag d, FloatVec x) {
  if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Le(hn::Abs(x), hn::Set(d, 39000.0f))))) {
    return PerLane(d, x, [](float v) { return std::cos(v); });
  }
  return hn::Cos(d, x);
}

// tanh(x) = p / q: odd rational approximation on [-7.9, 7.9], beyond which tanh is ±1 within 3 ulp
// (the coefficients are the minimax fit that Eigen and XLA use). 0.004 < q < 1.
constexpr float kTanhLimit = 7.90531110763549805f;
struct Fraction {
  FloatVec p, q;
};
HWY_INLINE Fraction TanhFraction(FloatTag d, FloatVec x) {
  const auto limit = hn::Set(d, kTanhLimit);
  const auto c = AtLeast(AtMost(x, limit), hn::Neg(limit));
  const auto s = hn::Mul(c, c);
  auto p = hn::Set(d, -2.76076847742355e-16f);
  p = hn::MulAdd(p, s, hn::Set(d, 2.00018790482477e-13f));
  p = hn::MulAdd(p, s, hn::Set(d, -8.60467152213735e-11f));
  p = hn::MulAdd(p, s, hn::Set(d, 5.12229709037114e-08f));
  p = hn::MulAdd(p, s, hn::Set(d, 1.48572235717979e-05f));
  p = hn::MulAdd(p, s, hn::Set(d, 6.37261928875436e-04f));
  p = hn::MulAdd(p, s, hn::Set(d, 4.89352455891786e-03f));
  p = hn::Mul(p, c);
  auto q = hn::Set(d, 1.19825839466702e-06f);
  q = hn::MulAdd(q, s, hn::Set(d, 1.18534705686654e-04f));
  q = hn::MulAdd(q, s, hn::Set(d, 2.26843463243900e-03f));
  return {p, hn::MulAdd(q, s, hn::Set(d, 4.89352518554385e-03f))};
}
HWY_INLINE FloatVec VTanh(FloatTag d, FloatVec x) {
  const auto limit = hn::Set(d, kTanhLimit);
  const Fraction f = TanhFraction(d, x);
  const auto size = hn::Abs(x);
  const auto y = hn::IfThenElse(hn::Lt(size, hn::Set(d, 4e-4f)), x, hn::Div(f.p, f.q));
  return hn::IfThenElse(hn::Gt(size, limit), hn::CopySignToAbs(hn::Set(d, 1.0f), x), y);
}

HWY_INLINE FloatVec VSigmoid(FloatTag d, FloatVec x) {
  const auto one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, VExp(d, hn::Neg(x))));
}

// Odd rational approximation on [-4, 4], beyond which erf rounds to ±1 (same source).
HWY_INLINE FloatVec VErf(FloatTag d, FloatVec x) {
  const auto limit = hn::Set(d, 4.0f);
  const auto c = AtLeast(AtMost(x, limit), hn::Neg(limit));
  const auto s = hn::Mul(c, c);
  auto p = hn::Set(d, -2.72614225801306e-10f);
  p = hn::MulAdd(p, s, hn::Set(d, 2.77068142495902e-08f));
  p = hn::MulAdd(p, s, hn::Set(d, -2.10102402082508e-06f));
  p = hn::MulAdd(p, s, hn::Set(d, -5.69250639462346e-05f));
  p = hn::MulAdd(p, s, hn::Set(d, -7.34990630326855e-04f));
  p = hn::MulAdd(p, s, hn::Set(d, -2.95459980854025e-03f));
  p = hn::MulAdd(p, s, hn::Set(d, -1.60960333262415e-02f));
  p = hn::Mul(p, c);
  auto q = hn::Set(d, -1.45660718464996e-05f);
  q = hn::MulAdd(q, s, hn::Set(d, -2.13374055278905e-04f));
  q = hn::MulAdd(q, s, hn::Set(d, -1.68282697438203e-03f));
  q = hn::MulAdd(q, s, hn::Set(d, -7.37332916720468e-03f));
  q = hn::MulAdd(q, s, hn::Set(d, -1.42647390514189e-02f));
  return hn::Div(p, q);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
