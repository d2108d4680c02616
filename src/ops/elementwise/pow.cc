// Pow: x to the power y, with the type of x for any type of y.
#include <cmath>
#include <type_traits>

#include "ops/axis_map.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/fused_elementwise.h"
#include "ops/hands_on.h"
#include "ops/input_values.h"
#include "ops/saturate.h"

namespace chairlift {
namespace {

template <typename X, typename Y>
struct PowOp {
  static X Apply(X x, Y y) {
    if constexpr (std::is_integral_v<X> && std::is_integral_v<Y>) {
      if (y >= 0) {
        // Wraps around, like multiplication.
        auto base = static_cast<uint64_t>(static_cast<std::make_unsigned_t<X>>(x));
        uint64_t power = 1;
        for (auto n = static_cast<std::make_unsigned_t<Y>>(y); n != 0; n >>= 1) {
          if ((n & 1) != 0) power *= base;
          base *= base;
        }
        return static_cast<X>(power);
      }
      // 1/x^n is an integer for ±1 only; the inverse of 0 is defined as 0.
      if (x == 1) return 1;
      if (x == static_cast<X>(-1)) return y % 2 == 0 ? X{1} : x;
      return 0;
    } else if constexpr (std::is_integral_v<X>) {
      return SaturateCast<X>(std::pow(static_cast<double>(x), static_cast<double>(y)));
    } else {
      return std::pow(x, static_cast<X>(y));
    }
  }
};

// Common exponents, as arithmetic.
template <typename X, typename Y>
struct SquareOp {
  static X Apply(X x, Y) { return x * x; }
};
template <typename X, typename Y>
struct CubeOp {
  static X Apply(X x, Y) { return x * x * x; }
};
template <typename X, typename Y>
struct RootOp {
  static X Apply(X x, Y) { return std::sqrt(x); }
};

template <typename X, typename Y>
void PowBlock(const ElementBlock& b) {
  if constexpr (std::is_floating_point_v<X>) {
    if (b.col_step[1] == 0 && b.row_step[1] == 0) {
      const Y y = *static_cast<const Y*>(b.in[1]);
      if (y == Y{2}) return BinaryBlock<SquareOp<X, Y>, X, Y, X>(b);
      if (y == Y{3}) return BinaryBlock<CubeOp<X, Y>, X, Y, X>(b);
      if constexpr (std::is_floating_point_v<Y>) {
        if (y == Y{0.5}) return BinaryBlock<RootOp<X, Y>, X, Y, X>(b);
      }
    }
  }
  BinaryBlock<PowOp<X, Y>, X, Y, X>(b);
}

StatusOr<std::unique_ptr<Kernel>> CompilePow(const CompileContext& context) {
  const DType exponent = context.inputs[1].dtype;
  CHAIRLIFT_ASSIGN_OR_RETURN(ElementFn fn, (DispatchTypes<float, double, int32_t, int64_t>(
                                               context.inputs[0].dtype, [exponent]<typename X>() {
                                                 return DispatchNumeric(exponent, []<typename Y>() {
                                                   return StatusOr<ElementFn>(PowBlock<X, Y>);
                                                 });
                                               })));
  return MakeElementKernel(context, fn);
}

Status InferPow(InferContext& context) {
  // The types may differ.
  return InferBroadcast(context, context.dtype(0), context.num_inputs());
}

int PowHandsOn(const Attributes&, std::span<const ValueInfo> inputs,
               std::span<const ValueInfo> outputs) {
  return NeutralHandsOn(inputs, outputs, 1, false);
}

std::optional<FusedStep> PowStep(const Attributes&, std::span<const ValueInfo> inputs) {
  const auto power = inputs[1].value == nullptr ? std::nullopt : ScalarValue(*inputs[1].value);
  if (power == 2.0) return FusedStep{.name = "Mul", .operands = {0, 0, -1}};
  if (power == 0.5) return FusedStep{.name = "Sqrt", .operands = {0, -1, -1}};
  return std::nullopt;
}

}  // namespace

void RegisterPow(OperatorRegistry& registry) {
  registry.Add({.name = "Pow",
                .min_inputs = 2,
                .max_inputs = 2,
                .input_types = {kFloatTypes | kIndexTypes, kNumericTypes},
                .infer = InferPow,
                .axes = ElementwiseAxes,
                .compile = CompilePow,
                .hands_on = PowHandsOn,
                .step = PowStep,
                .in_place = true,
                .layout_agnostic = true});
}

}  // namespace chairlift
