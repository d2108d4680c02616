// Rules for the broadcasting of opsets before 7.
#include <string>

#include "graph/onnx/normalise_rules.h"

namespace chairlift::normalise {
namespace {

Status CheckTwoInputs(const OnnxNode& node) {
  if (node.inputs.size() == 2 && node.inputs[0] != kNoValue && node.inputs[1] != kNoValue) {
    return absl::OkStatus();
  }
  return InvalidArgument("it has {} inputs; it takes 2", node.inputs.size());
}

// Appends `count` dimensions of 1 to input 1.
Status AppendDimensions(OnnxNode& node, Rewriter& rewriter, int rank, int64_t count) {
  if (count <= 0) return absl::OkStatus();
  std::vector<int64_t> axes(count);
  for (int64_t i = 0; i < count; ++i) axes[i] = rank + i;
  CHAIRLIFT_ASSIGN_OR_RETURN(
      node.inputs[1],
      rewriter.Add("Unsqueeze", kNewestOpset, {}, {node.inputs[1], rewriter.ConstantInts(axes)}));
  return absl::OkStatus();
}

}  // namespace

// With `axis`, the dimensions of the second input are aligned with those of the first from `axis`
// on; without, with its last ones.
Status BinaryBroadcast(OnnxNode& node, Rewriter& rewriter) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckTwoInputs(node));
  const bool broadcast = node.attributes.Int("broadcast", 0) != 0;
  const auto* axis = node.attributes.Find<int64_t>("axis");
  if (broadcast && axis != nullptr) {
    const SymbolicShape a = rewriter.info(node.inputs[0]).shape;
    const SymbolicShape b = rewriter.info(node.inputs[1]).shape;
    if (!a.has_rank() || !b.has_rank()) {
      return Unimplemented("'axis' needs inputs whose number of dimensions is known");
    }
    const int64_t first = *axis < 0 ? *axis + a.rank() : *axis;
    if (first < 0 || first + b.rank() > a.rank()) {
      return InvalidArgument("axis {} does not fit shapes {} and {}", *axis, a.ToString(),
                             b.ToString());
    }
    CHAIRLIFT_RETURN_IF_ERROR(
        AppendDimensions(node, rewriter, b.rank(), a.rank() - first - b.rank()));
  }
  node.attributes.Erase("broadcast");
  node.attributes.Erase("axis");
  return absl::OkStatus();
}

Status GemmBroadcast(OnnxNode& node, Rewriter&) {
  node.attributes.Erase("broadcast");
  return absl::OkStatus();
}

// A slope of rank 1 with more than one element belongs to the channels, axis 1.
Status PReluChannels(OnnxNode& node, Rewriter& rewriter) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckTwoInputs(node));
  const SymbolicShape x = rewriter.info(node.inputs[0]).shape;
  const SymbolicShape slope = rewriter.info(node.inputs[1]).shape;
  if (!x.has_rank() || !slope.has_rank()) {
    return Unimplemented("before opset 7 it needs inputs whose number of dimensions is known");
  }
  if (slope.rank() != 1 || (slope[0].known() && slope[0].value() == 1)) return absl::OkStatus();
  return AppendDimensions(node, rewriter, 1, x.rank() - 2);
}

}  // namespace chairlift::normalise
