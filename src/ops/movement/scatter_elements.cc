// ScatterElements: out = data, then out[i with i[axis] replaced by indices[i]] takes updates[i], in
// row-major order.
#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/movement/element_rows.h"
#include "ops/movement/indices.h"
#include "ops/movement/movement.h"
#include "ops/movement/scatter_reduction.h"
#include "ops/movement/strided_copy.h"

namespace chairlift {
namespace {

Status InferScatterElements(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(ParseScatterReduction(context.attributes()).status());
  CHAIRLIFT_RETURN_IF_ERROR(CheckUpdateType(context));
  const SymbolicShape& indices = context.shape(1);
  const SymbolicShape& updates = context.shape(2);
  CHAIRLIFT_RETURN_IF_ERROR(
      CheckElementShapes(context.shape(0), indices, context.attributes().Int("axis", 0)));
  if (indices.concrete() && updates.concrete() && !(indices.ToShape() == updates.ToShape())) {
    return InvalidArgument("updates {} must have the shape of indices {}", updates.ToString(),
                           indices.ToString());
  }
  return SetOutput(context, 0, context.dtype(0), context.shape(0));
}

StatusOr<std::unique_ptr<Kernel>> CompileScatterElements(const CompileContext& context) {
  const Shape& data = context.inputs[0].shape;
  const Shape& indices = context.inputs[1].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes.Int("axis", 0), data.rank()));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ScatterReduction reduction,
                             ParseScatterReduction(context.attributes));
  const ElementRows rows(data, indices, axis);
  const int64_t total = context.inputs[1].size();
  const int64_t bound = data[axis];
  const auto strides = RowMajorStrides(data);
  const StridedCopy copy(DTypeSize(context.inputs[0].dtype), data.dims(), strides, strides);
  const DType index_type = context.inputs[1].dtype;
  return DispatchScatter(
      context.inputs[0].dtype, reduction,
      [&]<typename T, ScatterReduction kReduction>() -> StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelArgs& args) -> Status {
          const void* indices = args.inputs[1];
          const auto* updates = static_cast<const T*>(args.inputs[2]);
          auto* out = static_cast<T*>(args.outputs[0]);
          CHAIRLIFT_RETURN_IF_ERROR(
              index_type == DType::kInt64
                  ? CheckIndices(static_cast<const int64_t*>(indices), total, bound)
                  : CheckIndices(static_cast<const int32_t*>(indices), total, bound));
          copy.Run(args.inputs[0], args.outputs[0], args.team);
          if (total == 0) return absl::OkStatus();
          for (int64_t r = 0; r < rows.count(); ++r) {
            T* to = out + rows.Base(r);
            for (int64_t j = 0; j < rows.length(); ++j) {
              const int64_t at = r * rows.length() + j;
              const int64_t index = WrapIndex(ReadIndex(index_type, indices, at), bound);
              T& element = to[j * rows.step() + index * rows.axis_stride()];
              element = Combine<kReduction>(element, updates[at]);
            }
          }
          return absl::OkStatus();
        });
      });
}

}  // namespace

OperatorDef ScatterElementsOperator() {
  return {.name = "ScatterElements",
          .min_inputs = 3,
          .max_inputs = 3,
          .input_types = {kAllTypes, kIndexTypes, kAllTypes},
          .infer = InferScatterElements,
          .axes = SameAxesButOne,
          .compile = CompileScatterElements,
          .native_half = true};
}

}  // namespace chairlift
