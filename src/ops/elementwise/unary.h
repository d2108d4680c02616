// Registers a function of one operand: a float32 kernel, a float64 function, and an integer one if
// the standard supports integers.
#ifndef CHAIRLIFT_OPS_ELEMENTWISE_UNARY_H_
#define CHAIRLIFT_OPS_ELEMENTWISE_UNARY_H_

#include <type_traits>

#include "ops/axis_map.h"
#include "ops/elementwise/element_loops.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/float_simd.h"

namespace chairlift {

// Op: `static double Apply(double x, const ElementParams&)`, called for float and double.
template <typename Op, typename T>
struct AsFloating {
  static T Apply(T x, const ElementParams& p) {
    return static_cast<T>(Op::Apply(static_cast<double>(x), p));
  }
};

// float32 without a vector kernel, and float64.
template <typename Op>
StatusOr<ElementFn> FindFloatingLoop(DType dtype) {
  return DispatchFloat(
      dtype, []<typename T>() { return StatusOr<ElementFn>(UnaryBlock<AsFloating<Op, T>, T, T>); });
}

// Compiles with a vector kernel for float32.
template <typename Op, FloatUnary kFloat>
StatusOr<std::unique_ptr<Kernel>> CompileFloatUnary(const CompileContext& context,
                                                    const ElementParams& params = {}) {
  if (context.inputs[0].dtype == DType::kFloat) {
    return MakeElementKernel(context, FindFloatUnary(kFloat), params);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(ElementFn fn, FindFloatingLoop<Op>(context.inputs[0].dtype));
  return MakeElementKernel(context, fn, params);
}

inline OperatorDef UnaryDef(const char* name, int min_opset,
                            StatusOr<std::unique_ptr<Kernel>> (*compile)(const CompileContext&),
                            TypeSet types = kFloatTypes) {
  return {.name = name,
          .min_opset = min_opset,
          .input_types = {types},
          .infer = InferSameAsInput,
          .axes = ElementwiseAxes,
          .compile = compile,
          .in_place = true,
          .layout_agnostic = true};
}

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_ELEMENTWISE_UNARY_H_
