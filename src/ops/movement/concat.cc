// Concat: tensors one after the other along one axis.
#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/movement/channel_moves.h"
#include "ops/movement/movement.h"
#include "ops/movement/strided_copy.h"
#include "tensor/text_types.h"

namespace chairlift {
namespace {

StatusOr<SymbolicShape> Join(const InferContext& context) {
  SymbolicShape out;
  int axis = 0;
  std::vector<Dim> joined;
  for (int i = 0; i < context.num_inputs(); ++i) {
    const SymbolicShape& in = context.shape(i);
    if (context.dtype(i) != context.dtype(0)) {
      return InvalidArgument("input {} is {}, but input 0 is {}; all must have one type", i,
                             DTypeName(context.dtype(i)), DTypeName(context.dtype(0)));
    }
    if (!in.has_rank()) {
      joined.push_back(Dim::Unknown());
      continue;
    }
    if (!out.has_rank()) {
      const auto* wanted = context.attributes().Find<int64_t>("axis");
      if (wanted == nullptr) return InvalidArgument("attribute axis is missing");
      CHAIRLIFT_ASSIGN_OR_RETURN(axis, NormalizeAxis(*wanted, in.rank()));
      out = in;
    } else if (in.rank() != out.rank()) {
      return InvalidArgument("input {} has shape {}, which does not join {}", i, in.ToString(),
                             out.ToString());
    }
    joined.push_back(in[axis]);
    for (int d = 0; d < in.rank(); ++d) {
      if (d == axis) continue;
      if (in[d].known() && out[d].known() && in[d].value() != out[d].value()) {
        return InvalidArgument("input {} has shape {}, which does not join {} along axis {}", i,
                               in.ToString(), out.ToString(), axis);
      }
      out[d] = MergeDims(out[d], in[d]);
    }
  }
  if (!out.has_rank()) return out;
  int64_t sum = 0;
  bool known = true;
  for (const Dim& d : joined) {
    known = known && d.known();
    if (d.known() && __builtin_add_overflow(sum, d.value(), &sum)) {
      return InvalidArgument("the joined dimension is too large");
    }
  }
  out[axis] = known ? Dim(sum) : joined.size() == 1 ? joined[0] : Dim::Unknown();
  return out;
}

Status InferConcat(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(SymbolicShape out, Join(context));
  const bool shape_like = out.has_rank() && out.rank() == 1;
  CHAIRLIFT_RETURN_IF_ERROR(SetOutput(context, 0, context.dtype(0), std::move(out)));
  if (!shape_like) return absl::OkStatus();
  // Even if a part's elements are unknown, its length may be known.
  std::vector<Dim> elements;
  for (int i = 0; i < context.num_inputs(); ++i) {
    if (const auto e = ShapeElements(context, i)) {
      elements.insert(elements.end(), e->begin(), e->end());
    } else {
      const SymbolicShape& in = context.shape(i);
      if (!in.has_rank() || !in[0].known() || in[0].value() > kMaxRank) return absl::OkStatus();
      elements.resize(elements.size() + static_cast<size_t>(in[0].value()), Dim::Unknown());
    }
    if (elements.size() > static_cast<size_t>(kMaxRank)) return absl::OkStatus();
  }
  if (kIndexTypes.Contains(context.dtype(0))) context.set_output_elements(0, std::move(elements));
  return absl::OkStatus();
}

// Along the channels of blocked tensors, which need not be whole blocks.
std::unique_ptr<Kernel> JoinChannels(const CompileContext& context) {
  std::vector<int64_t> counts;
  std::vector<ChannelOf> channels;
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    counts.push_back(context.inputs[i].shape[1]);
    for (int64_t c = 0; c < counts.back(); ++c) channels.push_back({static_cast<int>(i), c});
  }
  return MakeKernel(
      [moves = ChannelMoves(counts, channels, context.outputs[0])](const KernelArgs& args) {
        moves.Run(args.inputs, args.outputs[0], args.team);
        return absl::OkStatus();
      });
}

StatusOr<std::unique_ptr<Kernel>> CompileConcat(const CompileContext& context) {
  const Shape& out = context.outputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes.Int("axis", 0), out.rank()));
  if (context.outputs[0].layout == Layout::kChannelBlocked) return JoinChannels(context);
  const auto out_strides = RowMajorStrides(out);
  const size_t bytes = DTypeSize(context.outputs[0].dtype);
  std::vector<StridedCopy> copies;
  int64_t start = 0;
  for (const TensorDesc& in : context.inputs) {
    copies.emplace_back(bytes, in.shape.dims(), RowMajorStrides(in.shape), out_strides, 0,
                        start * out_strides[axis]);
    start += in.shape[axis];
  }
  return MakeKernel([copies = std::move(copies)](const KernelArgs& args) {
    for (size_t i = 0; i < copies.size(); ++i) {
      copies[i].Run(args.inputs[i], args.outputs[0], args.team);
    }
    return absl::OkStatus();
  });
}

std::optional<BlockedForm> ConcatInBlocks(const Attributes& attributes,
                                          std::span<const ValueInfo> inputs,
                                          std::span<const ValueInfo> outputs) {
  const SymbolicShape& out = outputs[0].shape;
  if (inputs.size() > 31 || !out.has_rank() || out.rank() < 3) return std::nullopt;
  const int64_t axis = attributes.Int("axis", 0);
  for (const ValueInfo& in : inputs) {
    if (in.dtype != DType::kFloat) return std::nullopt;
  }
  if (axis != 1 && axis != 1 - out.rank()) return std::nullopt;
  return BlockedForm{.inputs = (uint32_t{1} << inputs.size()) - 1, .outputs = 1};
}

// Requires a known rank, so that the axis has been checked.
int ConcatHandsOn(const Attributes&, std::span<const ValueInfo> inputs,
                  std::span<const ValueInfo>) {
  return inputs.size() == 1 && inputs[0].shape.has_rank() ? 0 : -1;
}

}  // namespace

OperatorDef ConcatOperator() {
  return {.name = "Concat",
          .max_inputs = OperatorDef::kVariadic,
          .input_types = {kMovableTypes},
          .infer = InferConcat,
          .axes = SameAxesButOne,
          .compile = CompileConcat,
          .hands_on = ConcatHandsOn,
          .blocked_form = ConcatInBlocks,
          .native_half = true};
}

}  // namespace chairlift
