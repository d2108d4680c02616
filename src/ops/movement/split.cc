// Split: consecutive parts of a tensor along one axis, of given or equal lengths.
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/movement/channel_moves.h"
#include "ops/movement/movement.h"
#include "ops/movement/strided_copy.h"
#include "tensor/text_types.h"

namespace chairlift {
namespace {

constexpr int64_t kMaxParts = 1 << 20;

// The length of each part if `dim` is divided equally; the last one is smaller if it does not
// divide evenly.
StatusOr<std::vector<int64_t>> EqualParts(int64_t dim, int parts) {
  if (dim > Shape::kMaxTensorBytes) return InvalidArgument("dimension {} is too large", dim);
  const int64_t part = (dim + parts - 1) / parts;
  std::vector<int64_t> out(parts, part);
  out.back() = dim - part * (parts - 1);
  if (out.back() < 0) return InvalidArgument("{} cannot be split into {} parts", dim, parts);
  return out;
}

Status InferSplit(InferContext& context) {
  const SymbolicShape& in = context.shape(0);
  const int parts = context.num_outputs();
  // Trailing outputs may be omitted.
  const int64_t num_outputs = context.attributes().Int("num_outputs", parts);
  if (num_outputs < parts || num_outputs > kMaxParts) {
    return InvalidArgument("num_outputs is {}, but there are {} outputs", num_outputs, parts);
  }
  if (!in.has_rank()) {
    for (ValueInfo& out : context.outputs()) out = {context.dtype(0), {}, nullptr, {}};
    return absl::OkStatus();
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes().Int("axis", 0), in.rank()));
  std::vector<Dim> lengths(parts, Dim::Unknown());
  if (context.has_input(1)) {
    if (const auto split = context.known_elements(1)) {
      if (static_cast<int>(split->size()) < parts) {
        return InvalidArgument("split gives {} lengths for {} outputs", split->size(), parts);
      }
      int64_t sum = 0;
      for (size_t i = 0; i < split->size(); ++i) {
        const int64_t length = (*split)[i];
        if (length < 0 || __builtin_add_overflow(sum, length, &sum)) {
          return InvalidArgument("split length {} is not possible", length);
        }
        if (i < lengths.size()) lengths[i] = length;
      }
      if (in[axis].known() && sum != in[axis].value()) {
        return InvalidArgument("split lengths add up to {}, axis {} is {}", sum, axis,
                               in[axis].value());
      }
    }
  } else if (in[axis].known()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const auto equal,
                               EqualParts(in[axis].value(), static_cast<int>(num_outputs)));
    lengths.assign(equal.begin(), equal.begin() + parts);
  } else if (parts == 1) {
    lengths[0] = in[axis];
  }
  for (int i = 0; i < parts; ++i) {
    std::vector<Dim> out = in.dims();
    out[axis] = lengths[i];
    CHAIRLIFT_RETURN_IF_ERROR(
        SetOutput(context, i, context.dtype(0), SymbolicShape(std::move(out))));
  }
  const auto elements = in.rank() == 1 ? ShapeElements(context, 0) : std::nullopt;
  size_t start = 0;
  for (int i = 0; elements && i < parts && lengths[i].known(); ++i) {
    const auto length = static_cast<size_t>(lengths[i].value());
    if (length > elements->size() - start) break;
    context.set_output_elements(i, {elements->begin() + start, elements->begin() + start + length});
    start += length;
  }
  return absl::OkStatus();
}

// Where each output begins along the axis, for lengths that may include outputs that nothing reads.
std::vector<int64_t> Starts(std::span<const int64_t> lengths) {
  std::vector<int64_t> starts;
  int64_t start = 0;
  for (const int64_t length : lengths) {
    starts.push_back(start);
    start += length;
  }
  return starts;
}

// The length of each output along the axis: null if it depends on an input.
StatusOr<std::optional<std::vector<int64_t>>> Lengths(const CompileContext& context, int axis) {
  std::vector<int64_t> lengths;
  if (!context.has_input(1)) {
    const auto parts = static_cast<int64_t>(context.outputs.size());
    CHAIRLIFT_ASSIGN_OR_RETURN(
        lengths, EqualParts(context.inputs[0].shape[axis],
                            static_cast<int>(context.attributes.Int("num_outputs", parts))));
    lengths.resize(static_cast<size_t>(parts));
    return lengths;
  }
  for (const TensorDesc& out : context.outputs) {
    if (!out.present()) return std::optional<std::vector<int64_t>>();
    lengths.push_back(out.shape[axis]);
  }
  return lengths;
}

using Copies = std::vector<std::pair<size_t, StridedCopy>>;

Copies CopiesOf(const TensorDesc& in, std::span<const TensorDesc> outputs, int axis,
                const std::vector<int64_t>& starts) {
  const auto in_strides = RowMajorStrides(in.shape);
  Copies copies;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorDesc& out = outputs[i];
    if (!out.present()) continue;
    copies.emplace_back(i, StridedCopy(DTypeSize(in.dtype), out.shape.dims(), in_strides,
                                       RowMajorStrides(out.shape), starts[i] * in_strides[axis]));
  }
  return copies;
}

void RunCopies(const Copies& copies, const KernelArgs& args) {
  for (const auto& [i, copy] : copies) {
    if (args.outputs[i] != nullptr) copy.Run(args.inputs[0], args.outputs[i], args.team);
  }
}

// The lengths come with each run; those of unread outputs are not known before.
std::unique_ptr<Kernel> SplitByInput(const CompileContext& context, int axis) {
  const std::vector<TensorDesc> outputs(context.outputs.begin(), context.outputs.end());
  return MakeKernel([in = context.inputs[0], count = context.inputs[1].size(), outputs,
                     axis](const KernelArgs& args) -> Status {
    if (count < static_cast<int64_t>(outputs.size())) {
      return InvalidArgument("split gives {} lengths for {} outputs", count, outputs.size());
    }
    const std::span lengths(static_cast<const int64_t*>(args.inputs[1]), outputs.size());
    int64_t left = in.shape[axis];
    for (size_t i = 0; i < outputs.size(); ++i) {
      const bool fits = lengths[i] >= 0 && lengths[i] <= left &&
                        (!outputs[i].present() || lengths[i] == outputs[i].shape[axis]);
      if (!fits) return InvalidArgument("split length {} is not possible", lengths[i]);
      left -= lengths[i];
    }
    RunCopies(CopiesOf(in, outputs, axis, Starts(lengths)), args);
    return absl::OkStatus();
  });
}

// Along the channels of a blocked tensor.
std::unique_ptr<Kernel> SplitChannels(const CompileContext& context,
                                      const std::vector<int64_t>& starts) {
  std::vector<std::pair<size_t, ChannelMoves>> moves;
  const int64_t channels = context.inputs[0].shape[1];
  for (size_t i = 0; i < starts.size(); ++i) {
    const TensorDesc& out = context.outputs[i];
    if (!out.present()) continue;
    std::vector<ChannelOf> part;
    for (int64_t c = 0; c < out.shape[1]; ++c) part.push_back({0, starts[i] + c});
    moves.emplace_back(i, ChannelMoves(std::span(&channels, 1), part, out));
  }
  return MakeKernel([moves = std::move(moves)](const KernelArgs& args) {
    for (const auto& [i, move] : moves) {
      if (args.outputs[i] != nullptr) move.Run(args.inputs.first(1), args.outputs[i], args.team);
    }
    return absl::OkStatus();
  });
}

StatusOr<std::unique_ptr<Kernel>> CompileSplit(const CompileContext& context) {
  const TensorDesc& in = context.inputs[0];
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes.Int("axis", 0), in.shape.rank()));
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto lengths, Lengths(context, axis));
  if (!lengths) return SplitByInput(context, axis);
  const std::vector<int64_t> starts = Starts(*lengths);
  if (in.layout == Layout::kChannelBlocked) return SplitChannels(context, starts);
  return MakeKernel([copies = CopiesOf(in, context.outputs, axis, starts)](const KernelArgs& args) {
    RunCopies(copies, args);
    return absl::OkStatus();
  });
}

std::optional<BlockedForm> SplitInBlocks(const Attributes& attributes,
                                         std::span<const ValueInfo> inputs,
                                         std::span<const ValueInfo> outputs) {
  const SymbolicShape& x = inputs[0].shape;
  const int64_t axis = attributes.Int("axis", 0);
  if (inputs[0].dtype != DType::kFloat || !x.has_rank() || outputs.size() > 31 ||
      (axis != 1 && axis != 1 - x.rank())) {
    return std::nullopt;
  }
  BlockedForm form{.inputs = 1};
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].dtype == DType::kUndefined) return std::nullopt;
    form.outputs |= 1u << i;
  }
  return form;
}

}  // namespace

OperatorDef SplitOperator() {
  return {.name = "Split",
          .max_inputs = 2,
          .max_outputs = OperatorDef::kVariadic,
          .input_types = {kMovableTypes, {DType::kInt64}},
          .infer = InferSplit,
          .axes = AxesButOne<0>,
          .compile = CompileSplit,
          .only_moves = true,
          .blocked_form = SplitInBlocks,
          .native_half = true};
}

}  // namespace chairlift
