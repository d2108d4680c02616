// CumSum and CumProd: running sums and products along an axis given as a scalar input, optionally
// exclusive or starting at the end.
#include <type_traits>
#include <utility>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/reduction/reduction.h"

namespace chairlift {
namespace {

Status InferCumSum(InferContext& context) {
  const SymbolicShape& shape = context.shape(0);
  context.set_output(0, context.dtype(0), shape);
  const auto axis = context.known_elements(1);
  if (!axis) return absl::OkStatus();
  if (axis->size() != 1) return InvalidArgument("axis has {} elements, not 1", axis->size());
  if (!shape.has_rank()) return absl::OkStatus();
  return NormalizeAxis((*axis)[0], shape.rank()).status();
}

struct SumOp {
  template <typename Acc>
  static Acc Apply(Acc a, Acc b) {
    return a + b;
  }
  static constexpr int kNothing = 0;
};
struct ProductOp {
  template <typename Acc>
  static Acc Apply(Acc a, Acc b) {
    return a * b;
  }
  static constexpr int kNothing = 1;
};

template <typename T, typename Op>
StatusOr<std::unique_ptr<Kernel>> CompileForCumSum(const CompileContext& context) {
  if (context.inputs[1].size() != 1) {
    return InvalidArgument("axis has {} elements, not 1", context.inputs[1].size());
  }
  const bool exclusive = context.attributes.Int("exclusive", 0) != 0;
  const bool reverse = context.attributes.Int("reverse", 0) != 0;
  const bool wide_axis = context.inputs[1].dtype == DType::kInt64;
  return MakeKernel([=, shape = context.inputs[0].shape](const KernelArgs& args) -> Status {
    const int64_t given = wide_axis ? *static_cast<const int64_t*>(args.inputs[1])
                                    : *static_cast<const int32_t*>(args.inputs[1]);
    CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(given, shape.rank()));
    const int64_t n = shape[axis];
    const int64_t inner = shape.NumElements(axis + 1, shape.rank());
    const int64_t lines = shape.NumElements(0, axis) * inner;
    // Integers wrap around.
    using Acc = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
    for (int64_t line = 0; line < lines; ++line) {
      const int64_t start = line / inner * n * inner + line % inner;
      const T* x = static_cast<const T*>(args.inputs[0]) + start;
      T* y = static_cast<T*>(args.outputs[0]) + start;
      Acc acc = Op::kNothing;
      for (int64_t i = 0; i < n; ++i) {
        const int64_t at = (reverse ? n - 1 - i : i) * inner;
        const auto v = static_cast<Acc>(x[at]);
        const Acc next = Op::Apply(acc, v);
        y[at] = static_cast<T>(exclusive ? acc : next);
        acc = next;
      }
    }
    return absl::OkStatus();
  });
}

template <typename Op>
StatusOr<std::unique_ptr<Kernel>> CompileCumSum(const CompileContext& context) {
  return DispatchTypes<float, double, int32_t, int64_t, uint32_t, uint64_t>(
      context.inputs[0].dtype, [&]<typename T>() { return CompileForCumSum<T, Op>(context); });
}

StatusOr<AxisMap> AxesOfCumSum(const InferContext& context) {
  const auto axis = context.known_elements(1);
  if (!axis || axis->size() != 1) return Unimplemented("its axis is not a single number");
  return AxesWithout(context, *axis);
}

template <typename Op>
OperatorDef Def(const char* name, int min_opset) {
  return {.name = name,
          .min_opset = min_opset,
          .min_inputs = 2,
          .max_inputs = 2,
          .input_types = {kFloatTypes |
                              TypeSet{DType::kInt32, DType::kInt64, DType::kUInt32, DType::kUInt64},
                          kIndexTypes},
          .infer = InferCumSum,
          .axes = AxesOfCumSum,
          .compile = CompileCumSum<Op>,
          .in_place = true};
}

}  // namespace

void RegisterCumSum(OperatorRegistry& registry) {
  registry.Add(Def<SumOp>("CumSum", 11));
  registry.Add(Def<ProductOp>("CumProd", 26));
}

}  // namespace chairlift
