// OneHot: along a new axis, the on-value at the index and the off-value elsewhere.
//
// Indices in [−depth, −1] count from the end; those outside [−depth, depth) match no position.
#include <algorithm>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/generation/generation.h"

namespace chairlift {
namespace {

Status InferOneHot(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(Dim depth, ScalarDim(context, 1));
  if (!context.has_input(2)) return InvalidArgument("input 2 is missing");
  const SymbolicShape& values = context.shape(2);
  if (values.has_rank() && (values.rank() != 1 || (values[0].known() && values[0].value() != 2))) {
    return InvalidArgument("values have shape {}, not [2]", values.ToString());
  }
  const SymbolicShape& indices = context.shape(0);
  if (!indices.has_rank()) {
    context.set_output(0, context.dtype(2), SymbolicShape());
    return absl::OkStatus();
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(
      const int axis, NormalizeAxis(context.attributes().Int("axis", -1), indices.rank() + 1));
  std::vector<Dim> dims = indices.dims();
  dims.insert(dims.begin() + axis, std::move(depth));
  return SetOutput(context, 0, context.dtype(2), SymbolicShape(std::move(dims)));
}

template <typename Index, typename Value>
StatusOr<std::unique_ptr<Kernel>> CompileForOneHot(const CompileContext& context, int axis) {
  const Shape& shape = context.outputs[0].shape;
  const int64_t outer = shape.NumElements(0, axis);
  const int64_t depth = shape[axis];
  const int64_t inner = shape.NumElements(axis + 1, shape.rank());
  return MakeKernel([=](const KernelArgs& args) {
    const Index* indices = static_cast<const Index*>(args.inputs[0]);
    const Value* values = static_cast<const Value*>(args.inputs[2]);
    Value* out = static_cast<Value*>(args.outputs[0]);
    std::fill_n(out, outer * depth * inner, values[0]);
    const double end = static_cast<double>(depth);
    for (int64_t k = 0; k < outer * inner; ++k) {
      const auto index = static_cast<double>(indices[k]);
      if (!(index >= -end && index < end)) continue;
      const auto whole = static_cast<int64_t>(index);
      const int64_t at = whole < 0 ? whole + depth : whole;
      out[(k / inner * depth + at) * inner + k % inner] = values[1];
    }
    return absl::OkStatus();
  });
}

StatusOr<std::unique_ptr<Kernel>> CompileOneHot(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(context.attributes.Int("axis", -1),
                                                           context.outputs[0].shape.rank()));
  if (context.inputs[2].size() != 2) {
    return InvalidArgument("values have {} elements, not 2", context.inputs[2].size());
  }
  return DispatchNumeric(context.inputs[0].dtype, [&]<typename Index>() {
    return DispatchWidth(context.inputs[2].dtype, [&]<typename Value>() {
      return CompileForOneHot<Index, Value>(context, axis);
    });
  });
}

StatusOr<AxisMap> AxesOfOneHot(const InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, KnownRank(context, 0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes().Int("axis", -1), rank + 1));
  AxisMap map = MakeAxisMap(context);
  map.inputs[0].labels = LabelsWithout(rank, {});
  map.outputs[0] = map.inputs[0];
  map.outputs[0].labels.insert(map.outputs[0].labels.begin() + axis, AxisMap::kNone);
  return map;
}

}  // namespace

void RegisterOneHot(OperatorRegistry& registry) {
  registry.Add({.name = "OneHot",
                .min_opset = 9,
                .min_inputs = 3,
                .max_inputs = 3,
                .input_types = {kNumericTypes, kNumericTypes, kAllTypes},
                .infer = InferOneHot,
                .axes = AxesOfOneHot,
                .compile = CompileOneHot});
}

}  // namespace chairlift
