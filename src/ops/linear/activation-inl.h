// Activations on vectors of floats. Included once per instruction set from *_simd.cc files.
#if defined(CHAIRLIFT_OPS_LINEAR_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CHAIRLIFT_OPS_LINEAR_ACTIVATION_INL_H_
#undef CHAIRLIFT_OPS_LINEAR_ACTIVATION_INL_H_
#else
#define CHAIRLIFT_OPS_LINEAR_ACTIVATION_INL_H_
#endif

#include "hwy/highway.h"
#include "ops/linear/activation.h"
#include "ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {

HWY_INLINE FloatVec VectorActivate(FloatTag d, ActivationKind kind, FloatVec alpha, FloatVec beta,
                                   FloatVec x) {
  const FloatVec zero = hn::Zero(d);
  const FloatVec one = hn::Set(d, 1.0f);
  const FloatVec half = hn::Set(d, 0.5f);
  switch (kind) {
    case ActivationKind::kNone:
      return x;
    case ActivationKind::kRelu:
      return AtLeast(x, zero);
    case ActivationKind::kLeakyRelu:
      return hn::IfThenElse(hn::Lt(x, zero), hn::Mul(alpha, x), x);
    case ActivationKind::kClip:
      return AtMost(AtLeast(x, alpha), beta);
    case ActivationKind::kSigmoid:
      return VSigmoid(d, x);
    case ActivationKind::kTanh:
      return VTanh(d, x);
    case ActivationKind::kHardSigmoid:
      return AtMost(AtLeast(hn::MulAdd(alpha, x, beta), zero), one);
    case ActivationKind::kHardSwish:
      return hn::Mul(x, hn::Min(hn::Max(hn::MulAdd(x, hn::Set(d, 1.0f / 6.0f), half), zero), one));
    case ActivationKind::kSilu:
      return hn::Mul(x, VSigmoid(d, x));
    case ActivationKind::kElu:
      return hn::IfThenElse(hn::Lt(x, zero), hn::Mul(alpha, hn::Expm1(d, hn::Min(x, zero))), x);
    case ActivationKind::kGelu:
      return hn::Mul(hn::Mul(x, half), hn::Add(one, VErf(d, hn::Mul(x, hn::Set(d, 0.70710678f)))));
    case ActivationKind::kGeluTanh: {
      const FloatVec cube = hn::Mul(hn::Mul(x, x), x);
      const FloatVec inner =
          hn::Mul(hn::Set(d, 0.79788456f), hn::MulAdd(cube, hn::Set(d, 0.044715f), x));
      return hn::Mul(hn::Mul(x, half), hn::Add(one, VTanh(d, inner)));
    }
  }
  return x;
}

}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#endif  // CHAIRLIFT_OPS_LINEAR_ACTIVATION_INL_H_
