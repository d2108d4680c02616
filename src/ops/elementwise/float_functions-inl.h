// float32 functions of one and of two vectors, and their names in float_simd.h. Included once per
// instruction set from *_simd.cc files, after ops/simd_targets.h.
#if defined(CHAIRLIFT_OPS_ELEMENTWISE_FLOAT_FUNCTIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CHAIRLIFT_OPS_ELEMENTWISE_FLOAT_FUNCTIONS_INL_H_
#undef CHAIRLIFT_OPS_ELEMENTWISE_FLOAT_FUNCTIONS_INL_H_
#else
#define CHAIRLIFT_OPS_ELEMENTWISE_FLOAT_FUNCTIONS_INL_H_
#endif

#include "hwy/highway.h"
#include "ops/simd_math-inl.h"

// X(enumerator, function) for each.
#ifndef CHAIRLIFT_FLOAT_UNARY
#define CHAIRLIFT_FLOAT_UNARY(X)         \
  X(kAbs, AbsOp)                         \
  X(kNeg, NegOp)                         \
  X(kSqrt, SqrtOp)                       \
  X(kReciprocal, ReciprocalOp)           \
  X(kExp, ExpOp)                         \
  X(kLog, LogOp)                         \
  X(kSin, SinOp)                         \
  X(kCos, CosOp)                         \
  X(kTanh, TanhOp)                       \
  X(kSigmoid, SigmoidOp)                 \
  X(kHardSigmoid, HardSigmoidOp)         \
  X(kHardSwish, HardSwishOp)             \
  X(kRelu, ReluOp)                       \
  X(kLeakyRelu, LeakyReluOp)             \
  X(kThresholdedRelu, ThresholdedReluOp) \
  X(kElu, EluOp)                         \
  X(kSelu, SeluOp)                       \
  X(kCelu, CeluOp)                       \
  X(kSoftplus, SoftplusOp)               \
  X(kSoftsign, SoftsignOp)               \
  X(kMish, MishOp)                       \
  X(kGelu, GeluOp)                       \
  X(kGeluTanh, GeluTanhOp)               \
  X(kErf, ErfOp)                         \
  X(kFloor, FloorOp)                     \
  X(kCeil, CeilOp)                       \
  X(kRound, RoundOp)                     \
  X(kSilu, SiluOp)                       \
  X(kClip, ClipOp)
#define CHAIRLIFT_FLOAT_BINARY(X) \
  X(kAdd, AddOp)                  \
  X(kSub, SubOp)                  \
  X(kMul, MulOp)                  \
  X(kDiv, DivOp)                  \
  X(kMax, MaxOp)                  \
  X(kMin, MinOp)                  \
  X(kPRelu, PReluOp)
#endif

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace functions {

// Clamped to [0, 1].
HWY_INLINE FloatVec Unit(FloatTag d, FloatVec x) {
  return AtMost(AtLeast(x, hn::Zero(d)), hn::Set(d, 1.0f));
}

// exp(x) - 1 for x < 0; any value elsewhere.
HWY_INLINE FloatVec ExpM1(FloatTag d, FloatVec x) { return hn::Expm1(d, AtMost(x, hn::Zero(d))); }

// log(1 + exp(x)); equals x or exp(x) for large |x|.
HWY_INLINE FloatVec Softplus(FloatTag d, FloatVec x) {
  const auto tail = VLog1pUnit(d, VExp(d, hn::Neg(hn::Abs(x))));
  return hn::Add(AtLeast(x, hn::Zero(d)), tail);
}

// x tanh(log(1 + exp(x))), with tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2).
HWY_INLINE FloatVec Mish(FloatTag d, FloatVec x) {
  const auto two = hn::Set(d, 2.0f);
  const auto e = VExp(d, AtMost(x, hn::Set(d, 20.0f)));
  const auto n = hn::Mul(e, hn::Add(e, two));
  return hn::Mul(x, hn::Div(n, hn::Add(n, two)));
}

HWY_INLINE FloatVec GeluTanh(FloatTag d, FloatVec x) {
  const auto half = hn::Mul(hn::Set(d, 0.5f), x);
  const auto cube = hn::Mul(hn::Mul(x, x), x);
  const auto inner = hn::Mul(hn::Set(d, 0.7978845608f), hn::MulAdd(hn::Set(d, 0.044715f), cube, x));
  return hn::MulAdd(half, VTanh(d, inner), half);
}

// a and b are the operator's first two parameters.

struct AbsOp {
  static HWY_INLINE FloatVec Apply(FloatTag, FloatVec x, FloatVec, FloatVec) { return hn::Abs(x); }
};
struct NegOp {
  static HWY_INLINE FloatVec Apply(FloatTag, FloatVec x, FloatVec, FloatVec) { return hn::Neg(x); }
};
struct SqrtOp {
  static HWY_INLINE FloatVec Apply(FloatTag, FloatVec x, FloatVec, FloatVec) { return hn::Sqrt(x); }
};
struct ReciprocalOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec, FloatVec) {
    return hn::Div(hn::Set(d, 1.0f), x);
  }
};
struct ExpOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec, FloatVec) {
    return VExp(d, x);
  }
};
struct LogOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec, FloatVec) {
    return VLog(d, x);
  }
};
struct SinOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec, FloatVec) {
    return VSin(d, x);
  }
};
struct CosOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec, FloatVec) {
    return VCos(d, x);
  }
};
struct TanhOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec, FloatVec) {
    return VTanh(d, x);
  }
};
struct SigmoidOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec, FloatVec) {
    return VSigmoid(d, x);
  }
};
struct HardSigmoidOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec a, FloatVec b) {
    return Unit(d, hn::MulAdd(a, x, b));
  }
};
struct HardSwishOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec, FloatVec) {
    return hn::Mul(x, Unit(d, hn::MulAdd(x, hn::Set(d, 1.0f / 6.0f), hn::Set(d, 0.5f))));
  }
};
struct ReluOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec, FloatVec) {
    return AtLeast(x, hn::Zero(d));
  }
};
struct LeakyReluOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec a, FloatVec) {
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(a, x), x);
  }
};
struct ThresholdedReluOp {
  static HWY_INLINE FloatVec Apply(FloatTag, FloatVec x, FloatVec a, FloatVec) {
    return hn::IfThenElseZero(hn::Gt(x, a), x);
  }
};
struct EluOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec a, FloatVec) {
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(a, ExpM1(d, x)), x);
  }
};
struct SeluOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec a, FloatVec b) {
    return hn::Mul(b, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(a, ExpM1(d, x)), x));
  }
};
struct CeluOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec a, FloatVec) {
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(a, ExpM1(d, hn::Div(x, a))), x);
  }
};
struct SoftplusOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec, FloatVec) {
    return Softplus(d, x);
  }
};
struct SoftsignOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec, FloatVec) {
    return hn::Div(x, hn::Add(hn::Set(d, 1.0f), hn::Abs(x)));
  }
};
struct MishOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec, FloatVec) {
    return Mish(d, x);
  }
};
struct GeluOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec, FloatVec) {
    return hn::Mul(hn::Mul(hn::Set(d, 0.5f), x),
                   hn::Add(hn::Set(d, 1.0f), VErf(d, hn::Mul(x, hn::Set(d, 0.70710678f)))));
  }
};
struct GeluTanhOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec, FloatVec) {
    return GeluTanh(d, x);
  }
};
struct ErfOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec, FloatVec) {
    return VErf(d, x);
  }
};
struct FloorOp {
  static HWY_INLINE FloatVec Apply(FloatTag, FloatVec x, FloatVec, FloatVec) {
    return hn::Floor(x);
  }
};
struct CeilOp {
  static HWY_INLINE FloatVec Apply(FloatTag, FloatVec x, FloatVec, FloatVec) { return hn::Ceil(x); }
};
struct RoundOp {
  static HWY_INLINE FloatVec Apply(FloatTag, FloatVec x, FloatVec, FloatVec) {
    return hn::Round(x);
  }
};
struct SiluOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec, FloatVec) {
    return hn::Mul(x, VSigmoid(d, x));
  }
};
struct ClipOp {
  static HWY_INLINE FloatVec Apply(FloatTag, FloatVec x, FloatVec a, FloatVec b) {
    return AtMost(AtLeast(x, a), b);
  }
};

struct AddOp {
  static HWY_INLINE FloatVec Apply(FloatTag, FloatVec x, FloatVec y) { return hn::Add(x, y); }
};
struct SubOp {
  static HWY_INLINE FloatVec Apply(FloatTag, FloatVec x, FloatVec y) { return hn::Sub(x, y); }
};
struct MulOp {
  static HWY_INLINE FloatVec Apply(FloatTag, FloatVec x, FloatVec y) { return hn::Mul(x, y); }
};
struct DivOp {
  static HWY_INLINE FloatVec Apply(FloatTag, FloatVec x, FloatVec y) { return hn::Div(x, y); }
};
// A comparison with NaN is false, so the result is y (if it is NaN) or x.
struct MaxOp {
  static HWY_INLINE FloatVec Apply(FloatTag, FloatVec x, FloatVec y) {
    return hn::IfThenElse(hn::Gt(x, y), x, hn::IfThenElse(hn::Eq(x, x), y, x));
  }
};
struct MinOp {
  static HWY_INLINE FloatVec Apply(FloatTag, FloatVec x, FloatVec y) {
    return hn::IfThenElse(hn::Lt(x, y), x, hn::IfThenElse(hn::Eq(x, x), y, x));
  }
};
struct PReluOp {
  static HWY_INLINE FloatVec Apply(FloatTag d, FloatVec x, FloatVec slope) {
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(x, slope), x);
  }
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace functions
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#endif  // CHAIRLIFT_OPS_ELEMENTWISE_FLOAT_FUNCTIONS_INL_H_
