// GatherElements: out[i] = data[i with i[axis] replaced by indices[i]].
#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/movement/element_rows.h"
#include "ops/movement/indices.h"
#include "ops/movement/movement.h"
#include "ops/movement/strided_copy.h"
#include "ops/ranges.h"

namespace chairlift {
namespace {

Status InferGatherElements(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(
      CheckElementShapes(context.shape(0), context.shape(1), context.attributes().Int("axis", 0)));
  return SetOutput(context, 0, context.dtype(0), context.shape(1));
}

StatusOr<std::unique_ptr<Kernel>> CompileGatherElements(const CompileContext& context) {
  const Shape& data = context.inputs[0].shape;
  const Shape& indices = context.inputs[1].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes.Int("axis", 0), data.rank()));
  const ElementRows rows(data, indices, axis);
  const int64_t total = context.inputs[1].size();
  const DType dtype = context.inputs[0].dtype;
  return DispatchIndex(
      context.inputs[1].dtype, [&]<typename Index>() -> StatusOr<std::unique_ptr<Kernel>> {
        return DispatchWidth(dtype, [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
          return MakeKernel([rows, total, bound = data[axis]](const KernelArgs& args) -> Status {
            const auto* data = static_cast<const T*>(args.inputs[0]);
            const auto* indices = static_cast<const Index*>(args.inputs[1]);
            auto* out = static_cast<T*>(args.outputs[0]);
            CHAIRLIFT_RETURN_IF_ERROR(CheckIndices(indices, total, bound));
            if (total == 0) return absl::OkStatus();
            const auto range = [&](int64_t first, int64_t last) {
              for (int64_t r = first; r < last; ++r) {
                const T* from = data + rows.Base(r);
                for (int64_t j = 0; j < rows.length(); ++j) {
                  const int64_t at = r * rows.length() + j;
                  out[at] =
                      from[j * rows.step() + WrapIndex(indices[at], bound) * rows.axis_stride()];
                }
              }
            };
            ForRanges(args.team, rows.count(), total * static_cast<int64_t>(sizeof(T)),
                      StridedCopy::kParallelBytes, range);
            return absl::OkStatus();
          });
        });
      });
}

}  // namespace

OperatorDef GatherElementsOperator() {
  return {.name = "GatherElements",
          .min_inputs = 2,
          .max_inputs = 2,
          .input_types = {kAllTypes, kIndexTypes},
          .infer = InferGatherElements,
          .axes = SameAxesButOne,
          .compile = CompileGatherElements,
          .only_moves = true,
          .native_half = true};
}

}  // namespace chairlift
