// GatherND: out[b.., i.., :] = data[b.., indices[b.., i.., :]..., :].
#include <cstring>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/movement/index_tuples.h"
#include "ops/movement/movement.h"
#include "ops/movement/strided_copy.h"
#include "ops/ranges.h"
#include "tensor/text_types.h"

namespace chairlift {
namespace {

Status InferGatherNd(InferContext& context) {
  const SymbolicShape& data = context.shape(0);
  const SymbolicShape& indices = context.shape(1);
  const int64_t batch = context.attributes().Int("batch_dims", 0);
  if (data.has_rank() && data.rank() == 0) return InvalidArgument("data must have rank 1 or more");
  if (indices.has_rank() && indices.rank() == 0) {
    return InvalidArgument("indices must have rank 1 or more");
  }
  if (batch < 0 || (data.has_rank() && batch >= data.rank()) ||
      (indices.has_rank() && batch >= indices.rank())) {
    return InvalidArgument("batch_dims {} is outside the ranks of data {} and indices {}", batch,
                           data.ToString(), indices.ToString());
  }
  if (!data.has_rank() || !indices.has_rank()) {
    return SetOutput(context, 0, context.dtype(0), SymbolicShape());
  }
  const Dim& width = indices[indices.rank() - 1];
  if (!width.known()) return SetOutput(context, 0, context.dtype(0), SymbolicShape());
  if (width.value() < 1 || width.value() > data.rank() - batch) {
    return InvalidArgument("index tuples of {} for data {} after {} batch dimensions",
                           width.value(), data.ToString(), batch);
  }
  SymbolicShape out = SymbolicShape::Scalar();
  for (int d = 0; d < indices.rank() - 1; ++d) {
    if (d < batch) {
      if (data[d].known() && indices[d].known() && data[d].value() != indices[d].value()) {
        return InvalidArgument("batch dimension {} differs: data {}, indices {}", d,
                               data.ToString(), indices.ToString());
      }
      out.Append(MergeDims(data[d], indices[d]));
    } else {
      out.Append(indices[d]);
    }
  }
  for (int d = static_cast<int>(batch + width.value()); d < data.rank(); ++d) out.Append(data[d]);
  return SetOutput(context, 0, context.dtype(0), std::move(out));
}

StatusOr<std::unique_ptr<Kernel>> CompileGatherNd(const CompileContext& context) {
  const Shape& data = context.inputs[0].shape;
  const Shape& indices = context.inputs[1].shape;
  const int batch = static_cast<int>(context.attributes.Int("batch_dims", 0));
  const IndexTuples tuples(data, batch, indices[indices.rank() - 1]);
  const int64_t run = tuples.run() * static_cast<int64_t>(DTypeSize(context.inputs[0].dtype));
  const int64_t count = indices.NumElements(0, indices.rank() - 1);
  const int64_t batches = data.NumElements(0, batch);
  const int64_t per_batch = batches == 0 ? 0 : count / batches;
  const int64_t element = static_cast<int64_t>(DTypeSize(context.inputs[0].dtype));
  return MakeKernel([=](const KernelArgs& args) -> Status {
    const auto* data = static_cast<const char*>(args.inputs[0]);
    const auto* indices = static_cast<const int64_t*>(args.inputs[1]);
    auto* out = static_cast<char*>(args.outputs[0]);
    CHAIRLIFT_RETURN_IF_ERROR(tuples.Check(indices, count));
    if (run == 0) return absl::OkStatus();
    const auto range = [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t from =
            i / per_batch * tuples.batch_stride() + tuples.Offset(indices + i * tuples.width());
        std::memcpy(out + i * run, data + from * element, static_cast<size_t>(run));
      }
    };
    ForRanges(args.team, count, count * run, StridedCopy::kParallelBytes, range);
    return absl::OkStatus();
  });
}

StatusOr<AxisMap> AxesOfGatherNd(const InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, KnownRank(context, 0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int index_rank, KnownRank(context, 1));
  const int batch = static_cast<int>(context.attributes().Int("batch_dims", 0));
  if (batch < 0 || batch >= std::min(rank, index_rank)) {
    return Unimplemented("its batch_dims is out of range");
  }
  AxisMap map = MakeAxisMap(context);
  map.does = "picks along";
  // Axes of the indices: those of the batch, then those of the selection; for data also those of
  // the selected runs.
  map.inputs[0].labels = LabelsWithout(batch, {});
  map.inputs[1].labels = LabelsWithout(index_rank - 1, {});
  map.outputs[0] = map.inputs[1];
  const Dim& depth = context.shape(1)[index_rank - 1];
  if (!depth.known()) return map;
  for (int axis = batch; axis < rank; ++axis) {
    const bool picked = axis >= batch + depth.value();
    map.inputs[0].labels.push_back(picked ? index_rank + axis : AxisMap::kNone);
    if (picked) map.outputs[0].labels.push_back(index_rank + axis);
  }
  return map;
}

}  // namespace

OperatorDef GatherNDOperator() {
  return {.name = "GatherND",
          .min_inputs = 2,
          .max_inputs = 2,
          .input_types = {kMovableTypes, {DType::kInt64}},
          .infer = InferGatherNd,
          .axes = AxesOfGatherNd,
          .compile = CompileGatherNd,
          .only_moves = true,
          .native_half = true};
}

}  // namespace chairlift
