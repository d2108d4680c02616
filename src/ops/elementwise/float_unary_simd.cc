// Functions of one float32 operand, one build per instruction set.
#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise/float_unary_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/elementwise/float_simd.h"
#include "ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace {

// Held to [0, 1].
HWY_INLINE FloatVec Unit(FloatTag d, FloatVec x) {
  return AtMost(AtLeast(x, hn::Zero(d)), hn::Set(d, 1.0f));
}

// exp(x) - 1 for x < 0; whatever elsewhere.
HWY_INLINE FloatVec ExpM1(FloatTag d, FloatVec x) { return hn::Expm1(d, AtMost(x, hn::Zero(d))); }

// log(1 + exp(x)), which for large |x| is x or exp(x).
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
    return hn::IfThenZeroElse(hn::Le(x, a), x);
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

template <typename Op>
void Block(const ElementBlock& block) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const auto a = hn::Set(d, static_cast<float>(block.params[0]));
  const auto b = hn::Set(d, static_cast<float>(block.params[1]));
  const auto n = static_cast<size_t>(block.cols);
  for (int64_t r = 0; r < block.rows; ++r) {
    const float* x = static_cast<const float*>(block.in[0]) + r * block.row_step[0];
    float* out = static_cast<float*>(block.out) + r * block.cols;
    size_t i = 0;
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      const auto y0 = Op::Apply(d, hn::LoadU(d, x + i), a, b);
      const auto y1 = Op::Apply(d, hn::LoadU(d, x + i + lanes), a, b);
      hn::StoreU(y0, d, out + i);
      hn::StoreU(y1, d, out + i + lanes);
    }
    for (; i + lanes <= n; i += lanes) {
      hn::StoreU(Op::Apply(d, hn::LoadU(d, x + i), a, b), d, out + i);
    }
    if (i < n) StorePart(Op::Apply(d, LoadPart(d, x + i, n - i), a, b), d, out + i, n - i);
  }
}

ElementFn Find(FloatUnary op) {
  switch (op) {
    case FloatUnary::kAbs:
      return Block<AbsOp>;
    case FloatUnary::kNeg:
      return Block<NegOp>;
    case FloatUnary::kSqrt:
      return Block<SqrtOp>;
    case FloatUnary::kReciprocal:
      return Block<ReciprocalOp>;
    case FloatUnary::kExp:
      return Block<ExpOp>;
    case FloatUnary::kLog:
      return Block<LogOp>;
    case FloatUnary::kSin:
      return Block<SinOp>;
    case FloatUnary::kCos:
      return Block<CosOp>;
    case FloatUnary::kTanh:
      return Block<TanhOp>;
    case FloatUnary::kSigmoid:
      return Block<SigmoidOp>;
    case FloatUnary::kHardSigmoid:
      return Block<HardSigmoidOp>;
    case FloatUnary::kHardSwish:
      return Block<HardSwishOp>;
    case FloatUnary::kRelu:
      return Block<ReluOp>;
    case FloatUnary::kLeakyRelu:
      return Block<LeakyReluOp>;
    case FloatUnary::kThresholdedRelu:
      return Block<ThresholdedReluOp>;
    case FloatUnary::kElu:
      return Block<EluOp>;
    case FloatUnary::kSelu:
      return Block<SeluOp>;
    case FloatUnary::kCelu:
      return Block<CeluOp>;
    case FloatUnary::kSoftplus:
      return Block<SoftplusOp>;
    case FloatUnary::kSoftsign:
      return Block<SoftsignOp>;
    case FloatUnary::kMish:
      return Block<MishOp>;
    case FloatUnary::kGelu:
      return Block<GeluOp>;
    case FloatUnary::kGeluTanh:
      return Block<GeluTanhOp>;
    case FloatUnary::kErf:
      return Block<ErfOp>;
    case FloatUnary::kFloor:
      return Block<FloorOp>;
    case FloatUnary::kCeil:
      return Block<CeilOp>;
    case FloatUnary::kRound:
      return Block<RoundOp>;
    case FloatUnary::kSilu:
      return Block<SiluOp>;
    case FloatUnary::kClip:
      return Block<ClipOp>;
  }
  return nullptr;
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {
namespace {
HWY_EXPORT(Find);
}  // namespace

// A unary operand has the output's shape, so that its column stride is always 1 (or there is one
// element).
ElementFn FindFloatUnary(FloatUnary op) { return HWY_DYNAMIC_DISPATCH(Find)(op); }

}  // namespace chairlift
#endif  // HWY_ONCE
