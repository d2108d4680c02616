// Equal, Less, Greater and similar; IsNaN and IsInf. Results are bools.
#include <cmath>
#include <string_view>
#include <type_traits>

#include "ops/axis_map.h"
#include "ops/elementwise/elementwise.h"
#include "tensor/text_types.h"

namespace chairlift {
namespace {

template <typename T>
struct EqualOp {
  static bool Apply(T x, T y) { return x == y; }
};
template <typename T>
struct LessOp {
  static bool Apply(T x, T y) { return x < y; }
};
template <typename T>
struct LessOrEqualOp {
  static bool Apply(T x, T y) { return x <= y; }
};

Status InferPairComparison(InferContext& context) { return InferBroadcast(context, DType::kBool); }

// kSwap: Greater(x, y) is Less(y, x).
template <template <typename> class Op, bool kSwap>
StatusOr<std::unique_ptr<Kernel>> CompilePair(const CompileContext& context) {
  const DType dtype = context.inputs[0].dtype;
  // Bools (Equal only) compare as bytes.
  if constexpr (std::is_same_v<Op<int>, EqualOp<int>>) {
    if (dtype == DType::kBytes) {
      return MakeElementKernel(
          context, BinaryBlock<Op<std::string_view>, std::string_view, std::string_view, bool>);
    }
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(
      ElementFn fn,
      DispatchNumeric(dtype == DType::kBool ? DType::kUInt8 : dtype, []<typename T>() {
        return StatusOr<ElementFn>(BinaryBlock<Op<T>, T, T, bool>);
      }));
  if (!kSwap) return MakeElementKernel(context, fn);
  const TensorDesc swapped[] = {context.inputs[1], context.inputs[0]};
  CHAIRLIFT_ASSIGN_OR_RETURN(ElementLoop loop,
                             ElementLoop::Make(swapped, context.outputs[0], fn, {}));
  return MakeKernel([loop = std::move(loop)](const KernelArgs& args) {
    const void* inputs[] = {args.inputs[1], args.inputs[0]};
    loop.Run(inputs, args.outputs[0], args.team);
    return absl::OkStatus();
  });
}

template <typename T>
struct IsNanOp {
  static bool Apply(T x, const ElementParams&) { return x != x; }
};
// params: whether −∞ and +∞ count.
template <typename T>
struct IsInfOp {
  static bool Apply(T x, const ElementParams& p) {
    return std::isinf(x) && (x < 0 ? p[0] : p[1]) != 0;
  }
};

Status InferTest(InferContext& context) {
  context.set_output(0, DType::kBool, context.shape(0));
  return absl::OkStatus();
}

template <template <typename> class Op>
StatusOr<std::unique_ptr<Kernel>> CompileTest(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(ElementFn fn, DispatchFloat(context.inputs[0].dtype, []<typename T>() {
                               return StatusOr<ElementFn>(UnaryBlock<Op<T>, T, bool>);
                             }));
  const Attributes& a = context.attributes;
  return MakeElementKernel(context, fn,
                           {static_cast<double>(a.Int("detect_negative", 1)),
                            static_cast<double>(a.Int("detect_positive", 1))});
}

OperatorDef PairDef(const char* name, int min_opset, TypeSet types,
                    decltype(CompileTest<IsNanOp>)* compile) {
  return {.name = name,
          .min_opset = min_opset,
          .min_inputs = 2,
          .max_inputs = 2,
          .input_types = {types},
          .infer = InferPairComparison,
          .axes = ElementwiseAxes,
          .compile = compile,
          .layout_agnostic = true};
}

OperatorDef TestDef(const char* name, int min_opset, decltype(CompileTest<IsNanOp>)* compile) {
  return {.name = name,
          .min_opset = min_opset,
          .input_types = {kFloatTypes},
          .infer = InferTest,
          .axes = ElementwiseAxes,
          .compile = compile,
          .layout_agnostic = true};
}

}  // namespace

void RegisterComparison(OperatorRegistry& registry) {
  registry.Add(PairDef("Equal", 1, kMovableTypes, CompilePair<EqualOp, false>));
  registry.Add(PairDef("Less", 1, kNumericTypes, CompilePair<LessOp, false>));
  registry.Add(PairDef("LessOrEqual", 12, kNumericTypes, CompilePair<LessOrEqualOp, false>));
  registry.Add(PairDef("Greater", 1, kNumericTypes, CompilePair<LessOp, true>));
  registry.Add(PairDef("GreaterOrEqual", 12, kNumericTypes, CompilePair<LessOrEqualOp, true>));
  registry.Add(TestDef("IsNaN", 9, CompileTest<IsNanOp>));
  registry.Add(TestDef("IsInf", 10, CompileTest<IsInfOp>));
}

}  // namespace chairlift
