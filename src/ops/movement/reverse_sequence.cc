// ReverseSequence: the first sequence_lens[b] steps of each sequence b in reverse.
#include <algorithm>
#include <array>
#include <cstring>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/movement/movement.h"

namespace chairlift {
namespace {

struct SequenceAxes {
  int batch;
  int time;
};

StatusOr<SequenceAxes> ParseAxes(const Attributes& attributes) {
  const int64_t batch = attributes.Int("batch_axis", 1);
  const int64_t time = attributes.Int("time_axis", 0);
  if (batch < 0 || batch > 1 || time != 1 - batch) {
    return InvalidArgument("batch_axis {} and time_axis {} must be 0 and 1 or 1 and 0", batch,
                           time);
  }
  return SequenceAxes{static_cast<int>(batch), static_cast<int>(time)};
}

Status InferReverseSequence(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const SequenceAxes axes, ParseAxes(context.attributes()));
  const SymbolicShape& in = context.shape(0);
  const SymbolicShape& lengths = context.shape(1);
  if (in.has_rank() && in.rank() < 2) {
    return InvalidArgument("input must have rank 2 or more, not {}", in.ToString());
  }
  if (lengths.has_rank() && lengths.rank() != 1) {
    return InvalidArgument("sequence_lens must have rank 1, not {}", lengths.ToString());
  }
  if (in.has_rank() && lengths.has_rank() && in[axes.batch].known() && lengths[0].known() &&
      in[axes.batch].value() != lengths[0].value()) {
    return InvalidArgument("there are {} sequence_lens for a batch of {}; each sequence needs one",
                           lengths[0].value(), in[axes.batch].value());
  }
  return SetOutput(context, 0, context.dtype(0), in);
}

StatusOr<std::unique_ptr<Kernel>> CompileReverseSequence(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const SequenceAxes axes, ParseAxes(context.attributes));
  const Shape& shape = context.inputs[0].shape;
  const int64_t batch = shape[axes.batch];
  const int64_t steps = shape[axes.time];
  const int64_t row =
      shape.NumElements(2, shape.rank()) * static_cast<int64_t>(DTypeSize(context.inputs[0].dtype));
  const int64_t batch_stride = axes.batch == 0 ? steps * row : row;
  const int64_t step_stride = axes.time == 0 ? batch * row : row;
  return MakeKernel([=](const KernelArgs& args) -> Status {
    const auto* src = static_cast<const char*>(args.inputs[0]);
    const auto* lengths = static_cast<const int64_t*>(args.inputs[1]);
    auto* dst = static_cast<char*>(args.outputs[0]);
    for (int64_t b = 0; b < batch; ++b) {
      if (lengths[b] < 0 || lengths[b] > steps) {
        return InvalidArgument("sequence length {} at position {} is outside [0, {}]", lengths[b],
                               b, steps);
      }
      for (int64_t t = 0; t < steps; ++t) {
        const int64_t from = t < lengths[b] ? lengths[b] - 1 - t : t;
        std::memcpy(dst + b * batch_stride + t * step_stride,
                    src + b * batch_stride + from * step_stride, static_cast<size_t>(row));
      }
    }
    return absl::OkStatus();
  });
}

StatusOr<AxisMap> AxesOfReverseSequence(const InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const SequenceAxes axes, ParseAxes(context.attributes()));
  CHAIRLIFT_ASSIGN_OR_RETURN(AxisMap map, AxesWithout(context, std::array{int64_t{axes.time}}));
  map.inputs[1].labels = {axes.batch};
  return map;
}

}  // namespace

OperatorDef ReverseSequenceOperator() {
  return {.name = "ReverseSequence",
          .min_inputs = 2,
          .max_inputs = 2,
          .input_types = {kAllTypes, {DType::kInt64}},
          .infer = InferReverseSequence,
          .axes = AxesOfReverseSequence,
          .compile = CompileReverseSequence,
          .only_moves = true,
          .native_half = true};
}

}  // namespace chairlift
