// Activation functions of one operand, with their attributes.
#include <algorithm>
#include <cmath>
#include <string>

#include "ops/elementwise/fused_elementwise.h"
#include "ops/elementwise/unary.h"
#include "ops/saturate.h"

namespace chairlift {
namespace {

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double Softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

struct SigmoidOp {
  static double Apply(double x, const ElementParams&) { return Sigmoid(x); }
};
struct SiluOp {
  static double Apply(double x, const ElementParams&) { return x * Sigmoid(x); }
};
struct HardSigmoidOp {
  static ElementParams Params(const Attributes& a) {
    return {a.Float("alpha", 0.2f), a.Float("beta", 0.5f)};
  }
  static double Apply(double x, const ElementParams& p) {
    return std::clamp(p[0] * x + p[1], 0.0, 1.0);
  }
};
struct HardSwishOp {
  static double Apply(double x, const ElementParams&) {
    return x * std::clamp(x / 6.0 + 0.5, 0.0, 1.0);
  }
};
struct ThresholdedReluOp {
  static ElementParams Params(const Attributes& a) { return {a.Float("alpha", 1.0f)}; }
  static double Apply(double x, const ElementParams& p) { return x > p[0] ? x : 0.0; }
};
struct LeakyReluOp {
  static ElementParams Params(const Attributes& a) { return {a.Float("alpha", 0.01f)}; }
  static double Apply(double x, const ElementParams& p) { return x < 0.0 ? p[0] * x : x; }
};
struct EluOp {
  static ElementParams Params(const Attributes& a) { return {a.Float("alpha", 1.0f)}; }
  static double Apply(double x, const ElementParams& p) {
    return x < 0.0 ? p[0] * std::expm1(x) : x;
  }
};
struct SeluOp {
  static ElementParams Params(const Attributes& a) {
    return {a.Float("alpha", 1.67326319217681884765625f),
            a.Float("gamma", 1.05070102214813232421875f)};
  }
  static double Apply(double x, const ElementParams& p) { return p[1] * EluOp::Apply(x, p); }
};
struct CeluOp {
  static ElementParams Params(const Attributes& a) { return {a.Float("alpha", 1.0f)}; }
  static double Apply(double x, const ElementParams& p) {
    return x < 0.0 ? p[0] * std::expm1(x / p[0]) : x;
  }
};
struct SoftplusOp {
  static double Apply(double x, const ElementParams&) { return Softplus(x); }
};
struct SoftsignOp {
  static double Apply(double x, const ElementParams&) { return x / (1.0 + std::abs(x)); }
};
struct MishOp {
  static double Apply(double x, const ElementParams&) { return x * std::tanh(Softplus(x)); }
};
struct GeluOp {
  static double Apply(double x, const ElementParams&) {
    return 0.5 * x * (1.0 + std::erf(x * 0.70710678118654752440));
  }
};
struct GeluTanhOp {
  static double Apply(double x, const ElementParams&) {
    return 0.5 * x * (1.0 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
  }
};
template <typename T>
struct ShrinkOp {
  static T Apply(T x, const ElementParams& p) {
    const auto v = static_cast<double>(x);
    return SaturateCast<T>(v < -p[0] ? v + p[1] : v > p[0] ? v - p[1] : 0.0);
  }
};
template <typename T>
struct ReluOp {
  static T Apply(T x, const ElementParams&) { return x < T{0} ? T{0} : x; }
};

template <typename Op, FloatUnary kFloat>
StatusOr<std::unique_ptr<Kernel>> CompileActivations(const CompileContext& context) {
  if constexpr (requires { Op::Params(context.attributes); }) {
    return CompileFloatUnary<Op, kFloat>(context, Op::Params(context.attributes));
  } else {
    return CompileFloatUnary<Op, kFloat>(context);
  }
}

StatusOr<std::unique_ptr<Kernel>> CompileRelu(const CompileContext& context) {
  const DType dtype = context.inputs[0].dtype;
  if (dtype == DType::kFloat) return MakeElementKernel(context, FindFloatUnary(FloatUnary::kRelu));
  CHAIRLIFT_ASSIGN_OR_RETURN(ElementFn fn, DispatchNumeric(dtype, []<typename T>() {
                               return StatusOr<ElementFn>(UnaryBlock<ReluOp<T>, T, T>);
                             }));
  return MakeElementKernel(context, fn);
}

StatusOr<std::unique_ptr<Kernel>> CompileShrink(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(ElementFn fn,
                             DispatchNumeric(context.inputs[0].dtype, []<typename T>() {
                               return StatusOr<ElementFn>(UnaryBlock<ShrinkOp<T>, T, T>);
                             }));
  return MakeElementKernel(
      context, fn,
      {context.attributes.Float("lambd", 0.5f), context.attributes.Float("bias", 0.0f)});
}

Status InferGelu(InferContext& context) {
  const std::string mode = context.attributes().String("approximate", "none");
  if (mode != "none" && mode != "tanh") {
    return InvalidArgument("attribute approximate is '{}', not 'none' or 'tanh'", mode);
  }
  return InferSameAsInput(context);
}

bool ByTanh(const Attributes& gelu) { return gelu.String("approximate", "none") == "tanh"; }

std::optional<FusedStep> GeluStep(const Attributes& attributes, std::span<const ValueInfo>) {
  return FusedStep{.name = ByTanh(attributes) ? "GeluTanh" : "Gelu", .operands = {0, -1, -1}};
}

StatusOr<std::unique_ptr<Kernel>> CompileGelu(const CompileContext& context) {
  return ByTanh(context.attributes) ? CompileFloatUnary<GeluTanhOp, FloatUnary::kGeluTanh>(context)
                                    : CompileFloatUnary<GeluOp, FloatUnary::kGelu>(context);
}

}  // namespace

void RegisterActivations(OperatorRegistry& registry) {
  OperatorDef defs[] = {
      UnaryDef("Relu", 1, CompileRelu, kFloatTypes | kSignedTypes),
      UnaryDef("Sigmoid", 1, CompileActivations<SigmoidOp, FloatUnary::kSigmoid>),
      UnaryDef("HardSigmoid", 1, CompileActivations<HardSigmoidOp, FloatUnary::kHardSigmoid>),
      UnaryDef("HardSwish", 14, CompileActivations<HardSwishOp, FloatUnary::kHardSwish>),
      UnaryDef("LeakyRelu", 1, CompileActivations<LeakyReluOp, FloatUnary::kLeakyRelu>),
      UnaryDef("ThresholdedRelu", 10,
               CompileActivations<ThresholdedReluOp, FloatUnary::kThresholdedRelu>),
      UnaryDef("Elu", 1, CompileActivations<EluOp, FloatUnary::kElu>),
      UnaryDef("Selu", 1, CompileActivations<SeluOp, FloatUnary::kSelu>),
      UnaryDef("Celu", 12, CompileActivations<CeluOp, FloatUnary::kCelu>),
      UnaryDef("Softplus", 1, CompileActivations<SoftplusOp, FloatUnary::kSoftplus>),
      UnaryDef("Softsign", 1, CompileActivations<SoftsignOp, FloatUnary::kSoftsign>),
      UnaryDef("Mish", 18, CompileActivations<MishOp, FloatUnary::kMish>),
      UnaryDef("Gelu", 20, CompileGelu),
      UnaryDef("Shrink", 9, CompileShrink, kNumericTypes),
      UnaryDef("Silu", 1, CompileActivations<SiluOp, FloatUnary::kSilu>),
  };
  for (OperatorDef& def : defs) {
    if (def.name == "Gelu") {
      def.infer = InferGelu;
      def.step = GeluStep;
    }
    if (def.name == "Silu") def.domain = "chairlift";
    registry.Add(std::move(def));
  }
}

}  // namespace chairlift
