// The rule for CausalConvWithState: a convolution over the previous columns and the input.
#include <limits>
#include <string>
#include <utility>

#include "graph/onnx/normalise_rules.h"

namespace chairlift::normalise {
namespace {

// The input with the `before` columns that precede it: the past state, or zeros.
StatusOr<ValueId> WithPast(const OnnxNode& node, Rewriter& rewriter, int64_t before) {
  if (node.inputs.size() > 3 && node.inputs[3] != kNoValue) {
    Attributes axis;
    axis.Set("axis", int64_t{2});
    return rewriter.Add("Concat", kNewestOpset, axis, {node.inputs[3], node.inputs[0]});
  }
  const ValueId pads = rewriter.ConstantInts({{0, 0, before, 0, 0, 0}});
  return rewriter.Add("Pad", kNewestOpset, {}, {node.inputs[0], pads});
}

}  // namespace

Status CausalConv(OnnxNode& node, Rewriter& rewriter) {
  if (node.inputs.size() < 2 || node.inputs[0] == kNoValue || node.inputs[1] == kNoValue ||
      node.outputs.empty()) {
    return InvalidArgument("it takes an input and a weight, and gives a result");
  }
  const std::string activation = node.attributes.String("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish") {
    return InvalidArgument("activation '{}' is not silu, swish or none", activation);
  }
  const SymbolicShape weight = rewriter.info(node.inputs[1]).shape;
  if (!weight.has_rank() || weight.rank() != 3 || !weight[0].known() || !weight[2].known() ||
      weight[2].value() < 1) {
    return Unimplemented("it needs a weight [channels, 1, k] that is known, not {}",
                         weight.ToString());
  }
  const int64_t before = weight[2].value() - 1;
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId all, WithPast(node, rewriter, before));
  if (node.outputs.size() > 1 && node.outputs[1] != kNoValue) {
    constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
    OnnxNode state;
    state.name = node.name + "/state";
    state.op_type = "Slice";
    state.opset = kNewestOpset;
    state.inputs = {all, rewriter.ConstantInts({{before == 0 ? kEnd : -before}}),
                    rewriter.ConstantInts({{kEnd}}), rewriter.ConstantInts({{2}})};
    state.outputs = {node.outputs[1]};
    rewriter.AddAfter(std::move(state));
  }
  node.outputs.resize(1);
  const ValueId bias = node.inputs.size() > 2 ? node.inputs[2] : kNoValue;
  Attributes groups;
  groups.Set("group", weight[0].value());
  if (activation == "none") {
    node.op_type = "Conv";
    node.inputs = {all, node.inputs[1], bias};
    node.attributes = std::move(groups);
    return absl::OkStatus();
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(
      const ValueId sums, rewriter.Add("Conv", kNewestOpset, groups, {all, node.inputs[1], bias}));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId gate, rewriter.Add("Sigmoid", kNewestOpset, {}, {sums}));
  node.op_type = "Mul";
  node.inputs = {sums, gate};
  node.attributes = {};
  return absl::OkStatus();
}

}  // namespace chairlift::normalise
