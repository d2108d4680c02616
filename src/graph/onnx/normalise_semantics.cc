// Rules for operators whose attributes or inputs changed their meaning.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

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

// Uses the statistics of its input instead of stored ones. Networks that standardise weights
// instead of normalising activations contain this (Qiao et al., "Weight Standardization", 2019).
Status BatchNormalizationTraining(OnnxNode& node, Rewriter& rewriter) {
  if (node.attributes.Int("training_mode", 0) == 0) return absl::OkStatus();
  for (size_t i = 0; i < 5; ++i) {
    if (!HasInput(node, i)) return InvalidArgument("it takes 5 inputs");
  }
  if (node.outputs.empty()) return InvalidArgument("it must have at least one output");
  const ValueId x = node.inputs[0];
  const SymbolicShape shape = rewriter.info(x).shape;
  if (!shape.has_rank() || shape.rank() < 2) {
    return Unimplemented("with training_mode its input must have a known rank of 2 or more, not {}",
                         shape.ToString());
  }
  std::vector<int64_t> others;  // all axes except that of the channels
  for (int64_t axis = 0; axis < shape.rank(); ++axis) {
    if (axis != 1) others.push_back(axis);
  }
  const ValueId axes = rewriter.ConstantInts(others);
  const auto add = [&](const char* op_type, ValueId a, ValueId b) {
    return rewriter.Add(op_type, kNewestOpset, {}, {a, b});
  };
  const auto mean_of = [&](ValueId value, bool keep) {
    Attributes attributes;
    attributes.Set("keepdims", int64_t{keep});
    return rewriter.Add("ReduceMean", kNewestOpset, attributes, {value, axes});
  };
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId spread_mean, mean_of(x, true));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId centred, add("Sub", x, spread_mean));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId squares, add("Mul", centred, centred));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId mean, mean_of(x, false));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId variance, mean_of(squares, false));
  const float momentum = node.attributes.Float("momentum", 0.9f);
  for (size_t i = 1; i < std::min<size_t>(3, node.outputs.size()); ++i) {
    if (node.outputs[i] == kNoValue) continue;
    const ValueId stored = node.inputs[i + 2], seen = i == 1 ? mean : variance;
    CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId keep, ScalarLike(rewriter, stored, momentum));
    CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId take, ScalarLike(rewriter, seen, 1 - momentum));
    CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId kept, add("Mul", stored, keep));
    CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId taken, add("Mul", seen, take));
    OnnxNode sum;
    sum.name = fmt::format("{}/running {}", node.name, i);
    sum.op_type = "Add";
    sum.opset = kNewestOpset;
    sum.inputs = {kept, taken};
    sum.outputs = {node.outputs[i]};
    rewriter.AddAfter(std::move(sum));
  }
  node.outputs.resize(1);
  node.inputs[3] = mean;
  node.inputs[4] = variance;
  node.attributes.Erase("training_mode");
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

// Resize 10 takes (X, scales). Nearest takes the element before, or, if it shrinks, the one after:
// so did the runtimes of that time.
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

// Before opset 13 the input was treated as a matrix, divided before `axis`. If that is the last
// axis, nothing changes.
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
