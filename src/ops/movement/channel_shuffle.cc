// chairlift::ChannelShuffle: Reshape to [N, groups, C / groups, …], Transpose of axes 1 and 2, and
// Reshape back (Zhang et al., ShuffleNet, CVPR 2018, §3.1).
#include <vector>

#include "ops/axis_map.h"
#include "ops/movement/channel_moves.h"
#include "ops/movement/copy_kernel.h"
#include "ops/movement/movement.h"

namespace chairlift {
namespace {

Status InferChannelShuffle(InferContext& context) {
  const SymbolicShape& x = context.shape(0);
  const int64_t groups = context.attributes().Int("groups", 1);
  if (x.has_rank() && x.rank() < 2) {
    return InvalidArgument("input {} has no channels", x.ToString());
  }
  if (groups < 1 || (x.has_rank() && x[1].known() && x[1].value() % groups != 0)) {
    return InvalidArgument("the channels of {} do not divide into {} groups", x.ToString(), groups);
  }
  context.set_output(0, context.dtype(0), x);
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileChannelShuffle(const CompileContext& context) {
  const TensorDesc &in = context.inputs[0], &out = context.outputs[0];
  const int64_t groups = context.attributes.Int("groups", 1);
  const int64_t channels = in.shape[1], of_group = channels / groups;
  if (out.layout == Layout::kRowMajor) {
    const int64_t size = in.shape.NumElements(2, in.shape.rank());
    const int64_t sizes[] = {in.shape[0], of_group, groups, size};
    const int64_t from[] = {channels * size, size, of_group * size, 1};
    const int64_t to[] = {channels * size, groups * size, size, 1};
    return CopyKernel({DTypeSize(in.dtype), sizes, from, to});
  }
  std::vector<ChannelOf> moved;
  for (int64_t c = 0; c < channels; ++c) moved.push_back({0, c % groups * of_group + c / groups});
  return MakeKernel([moves = ChannelMoves({&channels, 1}, moved, out)](const KernelArgs& args) {
    moves.Run(args.inputs, args.outputs[0], args.team);
    return absl::OkStatus();
  });
}

std::optional<BlockedForm> ShuffleInBlocks(const Attributes&, std::span<const ValueInfo> inputs,
                                           std::span<const ValueInfo>) {
  if (inputs[0].dtype != DType::kFloat) return std::nullopt;
  return BlockedForm{.inputs = 1, .outputs = 1};
}

}  // namespace

OperatorDef ChannelShuffleOperator() {
  return {.domain = "chairlift",
          .name = "ChannelShuffle",
          .input_types = {kAllTypes},
          .infer = InferChannelShuffle,
          .axes = FirstAxis<0>,
          .compile = CompileChannelShuffle,
          .only_moves = true,
          .blocked_form = ShuffleInBlocks,
          .native_half = true};
}

}  // namespace chairlift
