// Activations on vectors of floats. Included once per instruction set from *_simd.cc files.
#if defined(CHAIRLIFT_OPS_LINEAR_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CHAIRLIFT_OPS_LINEAR_ACTIVATION_INL_H_
#undef CHAIRLIFT_OPS_LINEAR_ACTIVATION_INL_H_
#else
#define CHAIRLIFT_OPS_LINEAR_ACTIVATION_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "ops/linear/activation.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V VectorSigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  // e⁸⁸ is still finite; beyond it the result has long been 0 or 1.
  const V bounded = hn::Min(hn::Max(x, hn::Set(d, -87.0f)), hn::Set(d, 87.0f));
  return hn::Div(one, hn::Add(one, hn::Exp(d, hn::Neg(bounded))));
}

// tanh(x) = 2·sigmoid(2x) − 1, and the odd series where that would cancel.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V VectorTanh(D d, V x) {
  const V two = hn::Set(d, 2.0f);
  const V large = hn::Sub(hn::Mul(two, VectorSigmoid(d, hn::Mul(two, x))), hn::Set(d, 1.0f));
  const V x2 = hn::Mul(x, x);
  V series = hn::Set(d, -17.0f / 315.0f);
  series = hn::MulAdd(series, x2, hn::Set(d, 2.0f / 15.0f));
  series = hn::MulAdd(series, x2, hn::Set(d, -1.0f / 3.0f));
  const V small = hn::MulAdd(hn::Mul(series, x2), x, x);
  return hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Set(d, 0.2f)), small, large);
}

// A rational minimax approximation on [-4, 4], beyond which erf is ±1 in single precision; error
// below 5e-7.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V VectorErf(D d, V x) {
  const V t = hn::Min(hn::Max(x, hn::Set(d, -4.0f)), hn::Set(d, 4.0f));
  const V t2 = hn::Mul(t, t);
  V p = hn::Set(d, -2.72614225801306e-10f);
  p = hn::MulAdd(p, t2, hn::Set(d, 2.77068142495902e-08f));
  p = hn::MulAdd(p, t2, hn::Set(d, -2.10102402082508e-06f));
  p = hn::MulAdd(p, t2, hn::Set(d, -5.69250639462346e-05f));
  p = hn::MulAdd(p, t2, hn::Set(d, -7.34990630326855e-04f));
  p = hn::MulAdd(p, t2, hn::Set(d, -2.95459980854025e-03f));
  p = hn::MulAdd(p, t2, hn::Set(d, -1.60960333262415e-02f));
  V q = hn::Set(d, -1.45660718464996e-05f);
  q = hn::MulAdd(q, t2, hn::Set(d, -2.13374055278905e-04f));
  q = hn::MulAdd(q, t2, hn::Set(d, -1.68282697438203e-03f));
  q = hn::MulAdd(q, t2, hn::Set(d, -7.37332916720468e-03f));
  q = hn::MulAdd(q, t2, hn::Set(d, -1.42647390514189e-02f));
  return hn::Div(hn::Mul(t, p), q);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V VectorActivate(D d, ActivationKind kind, V alpha, V beta, V x) {
  const V zero = hn::Zero(d);
  const V one = hn::Set(d, 1.0f);
  const V half = hn::Set(d, 0.5f);
  switch (kind) {
    case ActivationKind::kNone:
      return x;
    case ActivationKind::kRelu:
      return hn::Max(x, zero);
    case ActivationKind::kLeakyRelu:
      return hn::IfThenElse(hn::Lt(x, zero), hn::Mul(alpha, x), x);
    case ActivationKind::kClip:
      return hn::Min(hn::Max(x, alpha), beta);
    case ActivationKind::kSigmoid:
      return VectorSigmoid(d, x);
    case ActivationKind::kTanh:
      return VectorTanh(d, x);
    case ActivationKind::kHardSigmoid:
      return hn::Min(hn::Max(hn::MulAdd(alpha, x, beta), zero), one);
    case ActivationKind::kHardSwish:
      return hn::Mul(
          x, hn::Min(hn::Max(hn::MulAdd(x, hn::Set(d, 1.0f / 6.0f), half), zero), one));
    case ActivationKind::kSilu:
      return hn::Mul(x, VectorSigmoid(d, x));
    case ActivationKind::kElu:
      return hn::IfThenElse(hn::Lt(x, zero), hn::Mul(alpha, hn::Expm1(d, hn::Min(x, zero))), x);
    case ActivationKind::kGelu:
      return hn::Mul(hn::Mul(x, half),
                     hn::Add(one, VectorErf(d, hn::Mul(x, hn::Set(d, 0.70710678f)))));
    case ActivationKind::kGeluTanh: {
      const V cube = hn::Mul(hn::Mul(x, x), x);
      const V inner = hn::Mul(hn::Set(d, 0.79788456f),
                              hn::MulAdd(cube, hn::Set(d, 0.044715f), x));
      return hn::Mul(hn::Mul(x, half), hn::Add(one, VectorTanh(d, inner)));
    }
  }
  return x;
}

}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#endif  // CHAIRLIFT_OPS_LINEAR_ACTIVATION_INL_H_
