// Rules for operators whose attributes or inputs changed their meaning.
#include <string>
#include <utility>

#include "graph/onnx/normalise_rules.h"

namespace chairlift::normalise {
namespace {

bool HasInput(const OnnxNode& node, size_t i) {
  return i < node.inputs.size() && node.inputs[i] != kNoValue;
}

}  // namespace

Status BatchNormalizationIsTest(OnnxNode& node, Rewriter&) {
  if (node.attributes.Int("is_test", 0) == 0) {
    return Unimplemented("training (is_test = 0) is not supported");
  }
  node.attributes.Erase("is_test");
  if (node.outputs.size() > 1) node.outputs.erase(node.outputs.begin() + 1, node.outputs.end());
  return absl::OkStatus();
}

Status BatchNormalizationMode(OnnxNode& node, Rewriter&) {
  if (node.attributes.Int("spatial", 1) == 0) {
    return Unimplemented("spatial = 0 (statistics for each position) is not supported");
  }
  node.attributes.Erase("spatial");
  for (size_t i = 1; i < node.outputs.size(); ++i) {
    if (node.outputs[i] != kNoValue) {
      return Unimplemented("training (more than one output) is not supported");
    }
  }
  return absl::OkStatus();
}

Status DropoutIsTest(OnnxNode& node, Rewriter&) {
  node.attributes.Erase("is_test");
  return absl::OkStatus();
}

Status GridSampleModes(OnnxNode& node, Rewriter&) {
  const std::string mode = node.attributes.String("mode", "bilinear");
  if (mode == "bilinear") node.attributes.Set("mode", std::string("linear"));
  if (mode == "bicubic") node.attributes.Set("mode", std::string("cubic"));
  return absl::OkStatus();
}

// Repeats scale and bias for each channel of a group: [G] to [G, 1] to [G, C/G] to [C].
Status GroupNormalizationScales(OnnxNode& node, Rewriter& rewriter) {
  if (!HasInput(node, 0) || !HasInput(node, 1) || !HasInput(node, 2)) {
    return InvalidArgument("it takes 3 inputs");
  }
  const int64_t groups = node.attributes.Int("num_groups", 0);
  const SymbolicShape x = rewriter.info(node.inputs[0]).shape;
  if (!x.has_rank() || x.rank() < 2 || !x[1].known()) {
    return Unimplemented("before opset 21 it needs a number of channels that is known, not {}",
                         x.ToString());
  }
  const int64_t channels = x[1].value();
  if (groups < 1 || channels % groups != 0) {
    return InvalidArgument("num_groups = {} does not divide {} channels", groups, channels);
  }
  const ValueId column = rewriter.ConstantInts({{groups, 1}});
  const ValueId wide = rewriter.ConstantInts({{groups, channels / groups}});
  const ValueId flat = rewriter.ConstantInts({{channels}});
  for (int i : {1, 2}) {
    ValueId& input = node.inputs[i];
    CHAIRLIFT_ASSIGN_OR_RETURN(input, rewriter.Add("Reshape", kNewestOpset, {}, {input, column}));
    CHAIRLIFT_ASSIGN_OR_RETURN(input, rewriter.Add("Expand", kNewestOpset, {}, {input, wide}));
    CHAIRLIFT_ASSIGN_OR_RETURN(input, rewriter.Add("Reshape", kNewestOpset, {}, {input, flat}));
  }
  return absl::OkStatus();
}

Status RecurrentOutputSequence(OnnxNode& node, Rewriter&) {
  node.attributes.Erase("output_sequence");
  return absl::OkStatus();
}

// Resize 10 takes (X, scales). Nearest takes the element before, or, where it shrinks, the one
// after: so do the runtimes that models of that time were made with.
Status ResizeAsymmetric(OnnxNode& node, Rewriter& rewriter) {
  if (node.inputs.size() != 2 || !HasInput(node, 0) || !HasInput(node, 1)) {
    return InvalidArgument("it has {} inputs; in this opset it takes 2", node.inputs.size());
  }
  const ValueId scales = node.inputs[1];
  node.inputs = {node.inputs[0], kNoValue, scales};
  node.attributes.Set("coordinate_transformation_mode", std::string("asymmetric"));
  bool shrinks = false;
  const ValueInfo info = rewriter.info(scales);
  if (info.value != nullptr && info.value->dtype() == DType::kFloat) {
    for (const float scale : info.value->values<float>()) shrinks |= scale < 1;
  }
  node.attributes.Set("nearest_mode", std::string(shrinks ? "ceil" : "floor"));
  return absl::OkStatus();
}

Status ResizeEmptyInputs(OnnxNode& node, Rewriter& rewriter) {
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (!HasInput(node, i)) continue;
    const SymbolicShape shape = rewriter.info(node.inputs[i]).shape;
    if (shape.has_rank() && shape.rank() == 1 && shape[0].known() && shape[0].value() == 0) {
      node.inputs[i] = kNoValue;
    }
  }
  return absl::OkStatus();
}

Status RoiAlignHalfPixel(OnnxNode& node, Rewriter&) {
  node.attributes.Set("coordinate_transformation_mode", std::string("output_half_pixel"));
  return absl::OkStatus();
}

Status ScatterToElements(OnnxNode& node, Rewriter&) {
  node.op_type = "ScatterElements";
  return absl::OkStatus();
}

// Before opset 13 the input was seen as a matrix, split before `axis`: the same as now where that
// is the last axis.
Status SoftmaxTwoDimensional(OnnxNode& node, Rewriter& rewriter) {
  if (!HasInput(node, 0) || node.outputs.empty() || node.outputs[0] == kNoValue) {
    return InvalidArgument("it takes one input and gives one output");
  }
  const int64_t axis = node.attributes.Int("axis", 1);
  const ValueId x = node.inputs[0];
  const SymbolicShape shape = rewriter.info(x).shape;
  if (axis == -1 || (shape.has_rank() && axis == shape.rank() - 1)) {
    node.attributes.Set("axis", int64_t{-1});
    return absl::OkStatus();
  }
  Attributes flatten;
  flatten.Set("axis", axis);
  CHAIRLIFT_ASSIGN_OR_RETURN(node.inputs[0], rewriter.Add("Flatten", kNewestOpset, flatten, {x}));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId whole, rewriter.Add("Shape", kNewestOpset, {}, {x}));
  node.attributes.Set("axis", int64_t{-1});
  const ValueId matrix = rewriter.NewValue();
  OnnxNode reshape;
  reshape.name = node.name + "/Reshape";
  reshape.op_type = "Reshape";
  reshape.opset = kNewestOpset;
  reshape.inputs = {matrix, whole};
  reshape.outputs = {std::exchange(node.outputs[0], matrix)};
  rewriter.AddAfter(std::move(reshape));
  return absl::OkStatus();
}

}  // namespace chairlift::normalise
