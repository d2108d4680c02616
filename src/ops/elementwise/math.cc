// Functions of one operand without attributes: Abs, Neg, Sign, roots, exponentials, trigonometry,
// rounding.
#include <cmath>
#include <limits>

#include "ops/elementwise/unary.h"

namespace chairlift {
namespace {

struct SqrtOp {
  static double Apply(double x, const ElementParams&) { return std::sqrt(x); }
};
struct ReciprocalOp {
  static double Apply(double x, const ElementParams&) { return 1.0 / x; }
};
struct ExpOp {
  static double Apply(double x, const ElementParams&) { return std::exp(x); }
};
struct LogOp {
  static double Apply(double x, const ElementParams&) { return std::log(x); }
};
struct SinOp {
  static double Apply(double x, const ElementParams&) { return std::sin(x); }
};
struct CosOp {
  static double Apply(double x, const ElementParams&) { return std::cos(x); }
};
struct TanOp {
  static double Apply(double x, const ElementParams&) { return std::tan(x); }
};
struct AsinOp {
  static double Apply(double x, const ElementParams&) { return std::asin(x); }
};
struct AcosOp {
  static double Apply(double x, const ElementParams&) { return std::acos(x); }
};
struct AtanOp {
  static double Apply(double x, const ElementParams&) { return std::atan(x); }
};
struct SinhOp {
  static double Apply(double x, const ElementParams&) { return std::sinh(x); }
};
struct CoshOp {
  static double Apply(double x, const ElementParams&) { return std::cosh(x); }
};
struct TanhOp {
  static double Apply(double x, const ElementParams&) { return std::tanh(x); }
};
struct AsinhOp {
  static double Apply(double x, const ElementParams&) { return std::asinh(x); }
};
struct AcoshOp {
  static double Apply(double x, const ElementParams&) { return std::acosh(x); }
};
struct AtanhOp {
  static double Apply(double x, const ElementParams&) { return std::atanh(x); }
};
struct FloorOp {
  static double Apply(double x, const ElementParams&) { return std::floor(x); }
};
struct CeilOp {
  static double Apply(double x, const ElementParams&) { return std::ceil(x); }
};
// The default rounding mode: halves to even.
struct RoundOp {
  static double Apply(double x, const ElementParams&) { return std::nearbyint(x); }
};

template <typename T>
struct AbsOp {
  static T Apply(T x, const ElementParams&) {
    if constexpr (std::is_floating_point_v<T>) return std::abs(x);
    // Wraps for the smallest integer.
    return x < 0 ? static_cast<T>(uint64_t{0} - static_cast<uint64_t>(x)) : x;
  }
};
template <typename T>
struct NegOp {
  static T Apply(T x, const ElementParams&) {
    if constexpr (std::is_floating_point_v<T>) return -x;
    return static_cast<T>(uint64_t{0} - static_cast<uint64_t>(x));
  }
};
template <typename T>
struct SignOp {
  static T Apply(T x, const ElementParams&) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(x)) return x;
    }
    return static_cast<T>((x > T{0} ? 1 : 0) - (x < T{0} ? 1 : 0));
  }
};
// Erf also supports integers; the result is rounded towards zero.
template <typename T>
struct NumericErfOp {
  static T Apply(T x, const ElementParams&) {
    return static_cast<T>(std::erf(static_cast<double>(x)));
  }
};

template <template <typename> class Op>
StatusOr<std::unique_ptr<Kernel>> CompileNumeric(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(ElementFn fn,
                             DispatchNumeric(context.inputs[0].dtype, []<typename T>() {
                               return StatusOr<ElementFn>(UnaryBlock<Op<T>, T, T>);
                             }));
  return MakeElementKernel(context, fn);
}

template <template <typename> class Op, FloatUnary kFloat>
StatusOr<std::unique_ptr<Kernel>> CompileNumericWithSimd(const CompileContext& context) {
  if (context.inputs[0].dtype == DType::kFloat) {
    return MakeElementKernel(context, FindFloatUnary(kFloat));
  }
  return CompileNumeric<Op>(context);
}

template <typename Op, FloatUnary kFloat>
StatusOr<std::unique_ptr<Kernel>> CompileWithSimd(const CompileContext& context) {
  return CompileFloatUnary<Op, kFloat>(context);
}

template <typename Op>
StatusOr<std::unique_ptr<Kernel>> CompileLoop(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(ElementFn fn, FindFloatingLoop<Op>(context.inputs[0].dtype));
  return MakeElementKernel(context, fn);
}

}  // namespace

void RegisterMath(OperatorRegistry& registry) {
  constexpr TypeSet kSigned = kFloatTypes | kSignedTypes;
  const OperatorDef defs[] = {
      UnaryDef("Abs", 1, CompileNumericWithSimd<AbsOp, FloatUnary::kAbs>, kNumericTypes),
      UnaryDef("Neg", 1, CompileNumericWithSimd<NegOp, FloatUnary::kNeg>, kSigned),
      UnaryDef("Sign", 9, CompileNumeric<SignOp>, kNumericTypes),
      UnaryDef("Sqrt", 1, CompileWithSimd<SqrtOp, FloatUnary::kSqrt>),
      UnaryDef("Reciprocal", 1, CompileWithSimd<ReciprocalOp, FloatUnary::kReciprocal>),
      UnaryDef("Exp", 1, CompileWithSimd<ExpOp, FloatUnary::kExp>),
      UnaryDef("Log", 1, CompileWithSimd<LogOp, FloatUnary::kLog>),
      UnaryDef("Sin", 7, CompileWithSimd<SinOp, FloatUnary::kSin>),
      UnaryDef("Cos", 7, CompileWithSimd<CosOp, FloatUnary::kCos>),
      UnaryDef("Tan", 7, CompileLoop<TanOp>),
      UnaryDef("Asin", 7, CompileLoop<AsinOp>),
      UnaryDef("Acos", 7, CompileLoop<AcosOp>),
      UnaryDef("Atan", 7, CompileLoop<AtanOp>),
      UnaryDef("Sinh", 9, CompileLoop<SinhOp>),
      UnaryDef("Cosh", 9, CompileLoop<CoshOp>),
      UnaryDef("Tanh", 1, CompileWithSimd<TanhOp, FloatUnary::kTanh>),
      UnaryDef("Asinh", 9, CompileLoop<AsinhOp>),
      UnaryDef("Acosh", 9, CompileLoop<AcoshOp>),
      UnaryDef("Atanh", 9, CompileLoop<AtanhOp>),
      UnaryDef("Erf", 9, CompileNumericWithSimd<NumericErfOp, FloatUnary::kErf>, kNumericTypes),
      UnaryDef("Floor", 1, CompileWithSimd<FloorOp, FloatUnary::kFloor>),
      UnaryDef("Ceil", 1, CompileWithSimd<CeilOp, FloatUnary::kCeil>),
      UnaryDef("Round", 11, CompileWithSimd<RoundOp, FloatUnary::kRound>),
  };
  for (const OperatorDef& def : defs) registry.Add(def);
}

}  // namespace chairlift
