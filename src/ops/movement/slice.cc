// Slice: every step-th element from start to before end, along some axes.
#include <algorithm>
#include <limits>

#include "ops/axes.h"
#include "ops/hands_on.h"
#include "ops/movement/channel_moves.h"
#include "ops/movement/copy_kernel.h"
#include "ops/movement/indices.h"
#include "ops/movement/movement.h"
#include "tensor/text_types.h"

namespace chairlift {
namespace {

struct Range {
  int64_t start;
  int64_t step;
  int64_t count;
};

// What start:end:step selects from a dimension, clamped as in ONNX.
StatusOr<Range> Clamp(int64_t dim, int64_t start, int64_t end, int64_t step) {
  if (step == 0) return InvalidArgument("a step is 0");
  if (dim == 0) return Range{0, 1, 0};
  if (start < 0) start += dim;
  if (end < 0) end += dim;
  if (step > 0) {
    start = std::clamp<int64_t>(start, 0, dim);
    end = std::clamp<int64_t>(end, 0, dim);
    const int64_t count = end > start ? (end - start - 1) / step + 1 : 0;
    return Range{std::min(start, dim - 1), step, count};
  }
  step = std::max(step, -dim);
  start = std::clamp<int64_t>(start, 0, dim - 1);
  end = std::clamp<int64_t>(end, -1, dim - 1);
  const int64_t count = start > end ? (start - end - 1) / -step + 1 : 0;
  return Range{start, step, count};
}

using Indices = absl::InlinedVector<int64_t, 8>;

struct SliceInputs {
  Indices starts, ends, axes, steps;
};

// Missing axes are the leading ones, missing steps are 1.
Status FillDefaults(SliceInputs& in, bool has_axes, bool has_steps) {
  const size_t n = in.starts.size();
  if (!has_axes) {
    in.axes.resize(n);
    for (size_t i = 0; i < n; ++i) in.axes[i] = static_cast<int64_t>(i);
  }
  if (!has_steps) in.steps.assign(n, 1);
  if (in.ends.size() != n || in.axes.size() != n || in.steps.size() != n) {
    return InvalidArgument("{} starts, {} ends, {} axes and {} steps do not match", n,
                           in.ends.size(), in.axes.size(), in.steps.size());
  }
  return absl::OkStatus();
}

using Ranges = absl::InlinedVector<Range, 8>;

StatusOr<Ranges> Resolve(const Shape& shape, const SliceInputs& in) {
  Ranges ranges;
  for (int64_t d : shape) ranges.push_back({0, 1, d});
  uint64_t seen = 0;
  for (size_t i = 0; i < in.starts.size(); ++i) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(in.axes[i], shape.rank()));
    if (axis < kMaxRank && (seen >> axis & 1) != 0) {
      return InvalidArgument("axis {} is named twice", axis);
    }
    if (axis < kMaxRank) seen |= uint64_t{1} << axis;
    CHAIRLIFT_ASSIGN_OR_RETURN(ranges[axis],
                               Clamp(shape[axis], in.starts[i], in.ends[i], in.steps[i]));
  }
  return ranges;
}

// The length of start:end:step if not all are numbers: the dimension itself if everything is taken,
// the end if the first elements are taken; else unknown.
Dim SymbolicLength(const Dim& dim, const Dim& start, const Dim& end, int64_t start_value,
                   int64_t end_value, int64_t step) {
  constexpr int64_t kFar = std::numeric_limits<int32_t>::max();
  if (step == 1 && start.known() && start.value() == 0 && (end_value >= kFar || end.Same(dim))) {
    return dim;
  }
  if (step == -1 && start_value == -1 && end_value <= -kFar) return dim;
  if (step > 0 && end.known() && start.known() && end.value() <= start.value()) return 0;
  if (step == 1 && start.known() && start.value() == 0 && dim.known() && end.is_symbol()) {
    return AtMost(end, dim.value());  // how position embeddings are sliced
  }
  return Dim::Unknown();
}

Status InferSymbolic(InferContext& context, SymbolicShape& out) {
  const auto axes = context.has_input(3) ? context.known_elements(3) : std::nullopt;
  if (context.has_input(3) && !axes) {
    out = SymbolicShape::OfRank(out.rank());
    return absl::OkStatus();
  }
  if (axes) CHAIRLIFT_RETURN_IF_ERROR(NormalizeAxes(*axes, out.rank()).status());
  const auto starts = ShapeElements(context, 1);
  const auto ends = ShapeElements(context, 2);
  const auto start_values = context.known_elements(1);
  const auto end_values = context.known_elements(2);
  const auto steps = context.has_input(4) ? context.known_elements(4) : std::nullopt;
  const SymbolicShape& count = context.shape(1);
  const int64_t n = axes     ? static_cast<int64_t>(axes->size())
                    : starts ? static_cast<int64_t>(starts->size())
                    : count.has_rank() && count.rank() == 1 && count[0].known() ? count[0].value()
                                                                                : out.rank();
  if (n > out.rank()) return InvalidArgument("{} axes of {} are sliced", n, out.ToString());
  const SymbolicShape in = out;
  for (int64_t i = 0; i < n; ++i) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(axes ? (*axes)[i] : i, out.rank()));
    const auto u = static_cast<size_t>(i);
    const Dim start = starts && u < starts->size() ? (*starts)[u] : Dim::Unknown();
    const Dim end = ends && u < ends->size() ? (*ends)[u] : Dim::Unknown();
    const int64_t start_value = start_values && u < start_values->size() ? (*start_values)[u] : 0;
    const int64_t end_value = end_values && u < end_values->size() ? (*end_values)[u] : 0;
    const bool step_known = !context.has_input(4) || (steps && u < steps->size());
    const int64_t step = !step_known ? 0 : context.has_input(4) ? (*steps)[u] : 1;
    const bool numbers = start_values && u < start_values->size() && end_values &&
                         u < end_values->size() && step_known;
    if (step_known && step == 0) return InvalidArgument("a step is 0");
    if (in[axis].known() && numbers) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const Range range,
                                 Clamp(in[axis].value(), start_value, end_value, step));
      out[axis] = range.count;
    } else {
      out[axis] = SymbolicLength(in[axis], start, end, start_value, end_value, step);
    }
  }
  return absl::OkStatus();
}

Status InferSlice(InferContext& context) {
  for (int i = 1; i < 5; ++i) {
    if (!context.has_input(i)) continue;
    const SymbolicShape& s = context.shape(i);
    if (s.has_rank() && s.rank() != 1) {
      return InvalidArgument("input {} must have rank 1, not {}", i, s.ToString());
    }
  }
  SymbolicShape out = context.shape(0);
  if (!out.has_rank()) return SetOutput(context, 0, context.dtype(0), SymbolicShape());
  std::optional<std::vector<int64_t>> known[5];
  bool all = true;
  for (int i = 1; i < 5; ++i) {
    if (!context.has_input(i)) continue;
    known[i] = context.known_elements(i);
    all = all && known[i].has_value();
  }
  if (!all || !out.concrete()) {
    if (all) {
      // Counts that do not match are an error for any dimensions.
      SliceInputs in;
      Indices* const into[] = {nullptr, &in.starts, &in.ends, &in.axes, &in.steps};
      for (int i = 1; i < 5; ++i) {
        if (known[i]) into[i]->assign(known[i]->begin(), known[i]->end());
      }
      CHAIRLIFT_RETURN_IF_ERROR(FillDefaults(in, context.has_input(3), context.has_input(4)));
      CHAIRLIFT_RETURN_IF_ERROR(NormalizeAxes(in.axes, out.rank()).status());
    }
    CHAIRLIFT_RETURN_IF_ERROR(InferSymbolic(context, out));
    return SetOutput(context, 0, context.dtype(0), std::move(out));
  }
  SliceInputs in;
  Indices* const into[] = {nullptr, &in.starts, &in.ends, &in.axes, &in.steps};
  for (int i = 1; i < 5; ++i) {
    if (known[i]) into[i]->assign(known[i]->begin(), known[i]->end());
  }
  CHAIRLIFT_RETURN_IF_ERROR(FillDefaults(in, context.has_input(3), context.has_input(4)));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Ranges ranges, Resolve(out.ToShape(), in));
  for (int d = 0; d < out.rank(); ++d) out[d] = ranges[d].count;
  const auto elements = out.rank() == 1 ? ShapeElements(context, 0) : std::nullopt;
  CHAIRLIFT_RETURN_IF_ERROR(SetOutput(context, 0, context.dtype(0), std::move(out)));
  if (elements) {
    std::vector<Dim> taken;
    for (int64_t i = 0; i < ranges[0].count; ++i) {
      taken.push_back((*elements)[ranges[0].start + i * ranges[0].step]);
    }
    context.set_output_elements(0, std::move(taken));
  }
  return absl::OkStatus();
}

StridedCopy MakeCopy(const TensorDesc& in, const Shape& out, const Ranges& ranges) {
  auto strides = RowMajorStrides(in.shape);
  int64_t offset = 0;
  for (int d = 0; d < out.rank(); ++d) {
    offset += ranges[d].start * strides[d];
    // With at most one element the stride is not used, and the product might overflow.
    strides[d] = ranges[d].count > 1 ? strides[d] * ranges[d].step : 0;
  }
  return {DTypeSize(in.dtype), out.dims(), strides, RowMajorStrides(out), offset};
}

// Which of inputs 1 to 4 exist, and how to read them.
struct IndexInputs {
  TensorDesc desc[5];

  StatusOr<SliceInputs> Read(std::span<const void* const> data) const {
    SliceInputs in;
    Indices* const into[] = {nullptr, &in.starts, &in.ends, &in.axes, &in.steps};
    for (int i = 1; i < 5; ++i) {
      if (!desc[i].present()) continue;
      for (int64_t e = 0; e < desc[i].size(); ++e) {
        into[i]->push_back(ReadIndex(desc[i].dtype, data[i], e));
      }
    }
    CHAIRLIFT_RETURN_IF_ERROR(FillDefaults(in, desc[3].present(), desc[4].present()));
    return in;
  }
};

// Slices only the channels of a blocked tensor.
std::unique_ptr<Kernel> SliceChannels(const TensorDesc& in, const TensorDesc& out,
                                      const Range& range) {
  const int64_t channels = in.shape[1];
  std::vector<ChannelOf> taken;
  for (int64_t i = 0; i < range.count; ++i) taken.push_back({0, range.start + i * range.step});
  return MakeKernel(
      [moves = ChannelMoves(std::span(&channels, 1), taken, out)](const KernelArgs& args) {
        moves.Run(args.inputs.first(1), args.outputs[0], args.team);
        return absl::OkStatus();
      });
}

StatusOr<std::unique_ptr<Kernel>> CompileSlice(const CompileContext& context) {
  const TensorDesc in = context.inputs[0];
  const Shape out = context.outputs[0].shape;
  IndexInputs inputs;
  const void* data[5] = {};
  bool constant = true;
  for (int i = 1; i < 5; ++i) {
    if (!context.has_input(i)) continue;
    inputs.desc[i] = context.inputs[i];
    const Tensor* value = context.constant(i);
    constant = constant && value != nullptr;
    data[i] = value != nullptr ? value->raw() : nullptr;
  }
  if (constant) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const SliceInputs values, inputs.Read(data));
    CHAIRLIFT_ASSIGN_OR_RETURN(const Ranges ranges, Resolve(in.shape, values));
    if (in.layout == Layout::kChannelBlocked) {
      return SliceChannels(in, context.outputs[0], ranges[1]);
    }
    return CopyKernel(MakeCopy(in, out, ranges));
  }
  if (in.layout == Layout::kChannelBlocked) return Internal("no constants say which channels");
  return MakeKernel([in, out, inputs](const KernelArgs& args) -> Status {
    CHAIRLIFT_ASSIGN_OR_RETURN(const SliceInputs values, inputs.Read(args.inputs));
    CHAIRLIFT_ASSIGN_OR_RETURN(const Ranges ranges, Resolve(in.shape, values));
    for (int d = 0; d < out.rank(); ++d) {
      if (ranges[d].count != out[d]) {
        return InvalidArgument("slice of axis {} takes {} elements, not the expected {}", d,
                               ranges[d].count, out[d]);
      }
    }
    MakeCopy(in, out, ranges).Run(args.inputs[0], args.outputs[0], args.team);
    return absl::OkStatus();
  });
}

// If constants slice the channels and nothing else.
std::optional<BlockedForm> SliceInBlocks(const Attributes&, std::span<const ValueInfo> inputs,
                                         std::span<const ValueInfo>) {
  const auto constant = [](const ValueInfo& info) {
    return info.dtype == DType::kUndefined || info.value != nullptr;
  };
  if (inputs[0].dtype != DType::kFloat || !inputs[0].shape.has_rank() || inputs.size() < 4 ||
      !std::all_of(inputs.begin() + 1, inputs.end(), constant) || inputs[3].value == nullptr ||
      inputs[3].value->size() != 1) {
    return std::nullopt;
  }
  const int64_t axis = ReadIndex(inputs[3].dtype, inputs[3].value->raw(), 0);
  if (axis != 1 && axis != 1 - inputs[0].shape.rank()) return std::nullopt;
  return BlockedForm{.inputs = 1, .outputs = 1};
}

// If it takes everything, in order.
int SliceHandsOn(const Attributes& attributes, std::span<const ValueInfo> inputs,
                 std::span<const ValueInfo> outputs) {
  const bool forward = IsAbsent(inputs, 4) || AllEqual(inputs[4], 1);
  const bool checked = IsAbsent(inputs, 3) || inputs[3].value != nullptr;
  for (size_t i = 1; i < inputs.size(); ++i) {  // as many ends as starts
    if (!IsAbsent(inputs, i) && !SameShape(inputs[i].shape, inputs[1].shape)) return -1;
  }
  return forward && checked ? SameShapeHandsOn(attributes, inputs, outputs) : -1;
}

}  // namespace

OperatorDef SliceOperator() {
  return {.name = "Slice",
          .min_inputs = 3,
          .max_inputs = 5,
          .input_types = {kMovableTypes, kIndexTypes},
          .infer = InferSlice,
          .compile = CompileSlice,
          .hands_on = SliceHandsOn,
          .only_moves = true,
          .blocked_form = SliceInBlocks,
          .native_half = true};
}

}  // namespace chairlift
