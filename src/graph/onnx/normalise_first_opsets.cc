// Rules for forms of opsets 1 to 5.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "graph/onnx/normalise_rules.h"
#include "ops/element_type.h"

namespace chairlift::normalise {
namespace {

// TensorProto.DataType by number.
constexpr std::array<const char*, 17> kTypeNames = {
    "UNDEFINED", "FLOAT",  "UINT8",     "INT8",       "UINT16",  "INT16",
    "INT32",     "INT64",  "STRING",    "BOOL",       "FLOAT16", "DOUBLE",
    "UINT32",    "UINT64", "COMPLEX64", "COMPLEX128", "BFLOAT16"};

}  // namespace

// `to` was a name.
Status CastTypeName(OnnxNode& node, Rewriter&) {
  const auto* name = node.attributes.Find<std::string>("to");
  if (name == nullptr) return absl::OkStatus();
  const auto* const found = std::find(kTypeNames.begin(), kTypeNames.end(), *name);
  if (found == kTypeNames.end()) {
    return InvalidArgument("its attribute 'to' is '{}', not the name of an element type", *name);
  }
  node.attributes.Set("to", static_cast<int64_t>(found - kTypeNames.begin()));
  return absl::OkStatus();
}

// `axis` had a default.
Status ConcatAxis(OnnxNode& node, Rewriter&) {
  if (!node.attributes.Has("axis")) node.attributes.Set("axis", int64_t{1});
  return absl::OkStatus();
}

// `p` was a float.
Status LpPoolOrder(OnnxNode& node, Rewriter&) {
  const float* p = node.attributes.Find<float>("p");
  if (p == nullptr) return absl::OkStatus();
  if (*p != std::floor(*p) || *p < 1 || *p > 1024) {
    return Unimplemented("its attribute 'p' is {}; whole numbers from 1 on are supported", *p);
  }
  node.attributes.Set("p", static_cast<int64_t>(*p));
  return absl::OkStatus();
}

Status PadPaddings(OnnxNode& node, Rewriter&) {
  if (node.attributes.Find<std::vector<int64_t>>("paddings") == nullptr) {
    return InvalidArgument("its attribute 'paddings' is missing");
  }
  node.attributes.Set("pads", node.attributes.Ints("paddings"));
  node.attributes.Erase("paddings");
  return absl::OkStatus();
}

Status ReshapeShape(OnnxNode& node, Rewriter& rewriter) {
  if (node.inputs.size() != 1)
    return InvalidArgument("it takes 1 input, not {}", node.inputs.size());
  node.inputs.push_back(rewriter.ConstantInts(node.attributes.Ints("shape")));
  node.attributes.Erase("shape");
  return absl::OkStatus();
}

// Its constants had fewer digits.
Status SeluDefaults(OnnxNode& node, Rewriter&) {
  if (!node.attributes.Has("alpha")) node.attributes.Set("alpha", 1.6732f);
  if (!node.attributes.Has("gamma")) node.attributes.Set("gamma", 1.0507f);
  return absl::OkStatus();
}

// The sizes were an attribute or an input.
Status SplitInput(OnnxNode& node, Rewriter& rewriter) {
  if (node.inputs.size() != 2 || node.inputs[1] == kNoValue) return absl::OkStatus();
  const Tensor* const sizes = rewriter.info(node.inputs[1]).value;
  if (sizes == nullptr || sizes->dtype() != DType::kInt64) {
    return Unimplemented("its sizes (input 1) must be a constant of type int64");
  }
  node.attributes.Set("split", std::vector<int64_t>(sizes->values<int64_t>().begin(),
                                                    sizes->values<int64_t>().end()));
  node.inputs.resize(1);
  return absl::OkStatus();
}

// Repeats along one axis (inputs 1 and 2: how often, and the axis).
Status TileAxis(OnnxNode& node, Rewriter& rewriter) {
  if (node.inputs.size() != 3)
    return InvalidArgument("it takes 3 inputs, not {}", node.inputs.size());
  const auto constant = [&](size_t i) -> StatusOr<int64_t> {
    const Tensor* const value = rewriter.info(node.inputs[i]).value;
    if (value != nullptr && value->size() == 1) {
      if (value->dtype() == DType::kInt64) return value->data<int64_t>()[0];
      if (value->dtype() == DType::kInt32) return value->data<int32_t>()[0];
      if (value->dtype() == DType::kFloat) return static_cast<int64_t>(value->data<float>()[0]);
    }
    return Unimplemented("before opset 6 its input {} must be a constant number", i);
  };
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t tiles, constant(1));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t axis, constant(2));
  const SymbolicShape shape = rewriter.info(node.inputs[0]).shape;
  if (!shape.has_rank() || axis < 0 || axis >= shape.rank()) {
    return InvalidArgument("axis {} is not one of its input's, {}", axis, shape.ToString());
  }
  std::vector<int64_t> repeats(static_cast<size_t>(shape.rank()), 1);
  repeats[static_cast<size_t>(axis)] = tiles;
  node.inputs = {node.inputs[0], rewriter.ConstantInts(repeats)};
  return absl::OkStatus();
}

}  // namespace chairlift::normalise
