// ScatterND: out = data, then out[indices[i.., :]..., :] takes updates[i.., :], in row-major order.
#include "ops/axes.h"
#include "ops/movement/index_tuples.h"
#include "ops/movement/movement.h"
#include "ops/movement/scatter_reduction.h"
#include "ops/movement/strided_copy.h"

namespace chairlift {
namespace {

Status InferScatterNd(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(ParseScatterReduction(context.attributes()).status());
  CHAIRLIFT_RETURN_IF_ERROR(CheckUpdateType(context));
  const SymbolicShape& data = context.shape(0);
  const SymbolicShape& indices = context.shape(1);
  const SymbolicShape& updates = context.shape(2);
  if (data.has_rank() && data.rank() == 0) return InvalidArgument("data must have rank 1 or more");
  if (indices.has_rank() && indices.rank() == 0) {
    return InvalidArgument("indices must have rank 1 or more");
  }
  if (data.has_rank() && indices.has_rank() && indices[indices.rank() - 1].known()) {
    const int64_t width = indices[indices.rank() - 1].value();
    if (width < 1 || width > data.rank()) {
      return InvalidArgument("index tuples of {} for data {}", width, data.ToString());
    }
    SymbolicShape wanted = SymbolicShape::Scalar();
    for (int d = 0; d < indices.rank() - 1; ++d) wanted.Append(indices[d]);
    for (int d = static_cast<int>(width); d < data.rank(); ++d) wanted.Append(data[d]);
    bool fits = !updates.has_rank() || updates.rank() == wanted.rank();
    for (int d = 0; fits && updates.has_rank() && d < wanted.rank(); ++d) {
      fits = !updates[d].known() || !wanted[d].known() || updates[d].Same(wanted[d]);
    }
    if (!fits) {
      return InvalidArgument("updates {} must have shape {}", updates.ToString(),
                             wanted.ToString());
    }
  }
  return SetOutput(context, 0, context.dtype(0), data);
}

StatusOr<std::unique_ptr<Kernel>> CompileScatterNd(const CompileContext& context) {
  const Shape& data = context.inputs[0].shape;
  const Shape& indices = context.inputs[1].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const ScatterReduction reduction,
                             ParseScatterReduction(context.attributes));
  const IndexTuples tuples(data, 0, indices[indices.rank() - 1]);
  const int64_t count = indices.NumElements(0, indices.rank() - 1);
  const auto strides = RowMajorStrides(data);
  const StridedCopy copy(DTypeSize(context.inputs[0].dtype), data.dims(), strides, strides);
  return DispatchScatter(
      context.inputs[0].dtype, reduction,
      [&]<typename T, ScatterReduction kReduction>() -> StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelArgs& args) -> Status {
          const auto* indices = static_cast<const int64_t*>(args.inputs[1]);
          const auto* updates = static_cast<const T*>(args.inputs[2]);
          auto* out = static_cast<T*>(args.outputs[0]);
          CHAIRLIFT_RETURN_IF_ERROR(tuples.Check(indices, count));
          copy.Run(args.inputs[0], args.outputs[0], args.team);
          for (int64_t i = 0; i < count; ++i) {
            T* to = out + tuples.Offset(indices + i * tuples.width());
            const T* update = updates + i * tuples.run();
            for (int64_t j = 0; j < tuples.run(); ++j) {
              to[j] = Combine<kReduction>(to[j], update[j]);
            }
          }
          return absl::OkStatus();
        });
      });
}

}  // namespace

OperatorDef ScatterNDOperator() {
  return {.name = "ScatterND",
          .min_inputs = 3,
          .max_inputs = 3,
          .input_types = {kAllTypes, {DType::kInt64}, kAllTypes},
          .infer = InferScatterNd,
          .compile = CompileScatterNd,
          .native_half = true};
}

}  // namespace chairlift
