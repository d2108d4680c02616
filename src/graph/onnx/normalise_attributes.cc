// Rules for attributes that later opsets made inputs.
#include <utility>

#include "graph/onnx/normalise_rules.h"
#include "tensor/dtype.h"

namespace chairlift::normalise {
namespace {

// Moves a list of integers, if given, to input `index`.
void IntsToInput(OnnxNode& node, Rewriter& rewriter, const char* attribute, size_t index) {
  if (const auto* values = node.attributes.Find<std::vector<int64_t>>(attribute)) {
    SetInput(node, index, rewriter.ConstantInts(*values));
  }
  node.attributes.Erase(attribute);
}

// Old forms have at most `count` inputs; further ones would be mistaken for inputs of later forms.
Status CheckInputCount(const OnnxNode& node, size_t count) {
  if (node.inputs.size() <= count && !node.inputs.empty() && node.inputs[0] != kNoValue) {
    return absl::OkStatus();
  }
  return InvalidArgument("it has {} inputs; in this opset it takes {}", node.inputs.size(), count);
}

}  // namespace

void SetInput(OnnxNode& node, size_t index, ValueId input) {
  if (node.inputs.size() <= index) node.inputs.resize(index + 1, kNoValue);
  node.inputs[index] = input;
}

StatusOr<ValueId> ScalarLike(Rewriter& rewriter, ValueId like, float value) {
  const DType dtype = rewriter.info(like).dtype;
  if (dtype == DType::kUndefined) {
    return InvalidArgument("the element type of its input is not known");
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(
      const Tensor tensor,
      (DispatchTypes<float, double, Float16, BFloat16, int8_t, int16_t, int32_t, int64_t, uint8_t,
                     uint16_t, uint32_t, uint64_t>(dtype, [&]<typename T>() -> StatusOr<Tensor> {
        if constexpr (std::is_integral_v<T>) {
          const double low = static_cast<double>(std::numeric_limits<T>::lowest());
          const double high = static_cast<double>(std::numeric_limits<T>::max());
          if (!(value >= low && value < high)) {
            return InvalidArgument("{} does not fit {}", value, DTypeName(dtype));
          }
        }
        return Tensor::Scalar<T>(static_cast<T>(value));
      })));
  return rewriter.Constant(tensor);
}

Status ClipBounds(OnnxNode& node, Rewriter& rewriter) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckInputCount(node, 1));
  size_t index = 1;
  for (const char* attribute : {"min", "max"}) {
    if (const float* bound = node.attributes.Find<float>(attribute)) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId scalar,
                                 ScalarLike(rewriter, node.inputs[0], *bound));
      SetInput(node, index, scalar);
    }
    node.attributes.Erase(attribute);
    ++index;
  }
  return absl::OkStatus();
}

Status DftAxis(OnnxNode& node, Rewriter& rewriter) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckInputCount(node, 2));
  SetInput(node, 2, rewriter.ConstantScalar<int64_t>(node.attributes.Int("axis", 1)));
  node.attributes.Erase("axis");
  return absl::OkStatus();
}

// Before opset 10 the mask, which files declare even if unused, had the type of the data.
Status DropoutRatio(OnnxNode& node, Rewriter& rewriter) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckInputCount(node, 1));
  node.attributes.Erase("ratio");
  if (node.opset >= 10 || node.outputs.size() < 2 || node.outputs[1] == kNoValue) {
    return absl::OkStatus();
  }
  const ValueId mask = rewriter.NewValue();
  OnnxNode cast;
  cast.name = node.name + "/CastLike";
  cast.op_type = "CastLike";
  cast.opset = 21;
  cast.inputs = {mask, node.inputs[0]};
  cast.outputs = {std::exchange(node.outputs[1], mask)};
  rewriter.AddAfter(std::move(cast));
  return absl::OkStatus();
}

Status InputAxes(OnnxNode& node, Rewriter& rewriter) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckInputCount(node, 1));
  // An empty list has always meant all axes.
  if (node.attributes.Ints("axes").empty()) node.attributes.Erase("axes");
  IntsToInput(node, rewriter, "axes", 1);
  return absl::OkStatus();
}

Status PadAmounts(OnnxNode& node, Rewriter& rewriter) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckInputCount(node, 1));
  if (!node.attributes.Has("pads")) return InvalidArgument("attribute 'pads' is missing");
  IntsToInput(node, rewriter, "pads", 1);
  if (const float* value = node.attributes.Find<float>("value")) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId scalar, ScalarLike(rewriter, node.inputs[0], *value));
    SetInput(node, 2, scalar);
  }
  node.attributes.Erase("value");
  return absl::OkStatus();
}

Status SliceRanges(OnnxNode& node, Rewriter& rewriter) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckInputCount(node, 1));
  size_t index = 1;
  for (const char* attribute : {"starts", "ends", "axes"}) {
    if (index < 3 && !node.attributes.Has(attribute)) {
      return InvalidArgument("attribute '{}' is missing", attribute);
    }
    IntsToInput(node, rewriter, attribute, index++);
  }
  return absl::OkStatus();
}

Status SplitSizes(OnnxNode& node, Rewriter& rewriter) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckInputCount(node, 1));
  IntsToInput(node, rewriter, "split", 1);
  return absl::OkStatus();
}

Status SplitCount(OnnxNode& node, Rewriter&) {
  if (node.inputs.size() < 2 || node.inputs[1] == kNoValue) {
    node.attributes.Set("num_outputs", static_cast<int64_t>(node.outputs.size()));
  }
  return absl::OkStatus();
}

Status TopKCount(OnnxNode& node, Rewriter& rewriter) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckInputCount(node, 1));
  const auto* k = node.attributes.Find<int64_t>("k");
  if (k == nullptr) return InvalidArgument("attribute 'k' is missing");
  SetInput(node, 1, rewriter.ConstantInts({{*k}}));
  node.attributes.Erase("k");
  return absl::OkStatus();
}

Status UpsampleFactors(OnnxNode& node, Rewriter&) {
  node.attributes.Set("scales", std::vector<float>{1, 1, node.attributes.Float("height_scale", 0),
                                                   node.attributes.Float("width_scale", 0)});
  node.attributes.Erase("height_scale");
  node.attributes.Erase("width_scale");
  return absl::OkStatus();
}

Status UpsampleScales(OnnxNode& node, Rewriter& rewriter) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckInputCount(node, 1));
  const std::vector<float> scales = node.attributes.Floats("scales");
  SetInput(
      node, 1,
      rewriter.Constant(Tensor::Of<float>(Shape{static_cast<int64_t>(scales.size())}, scales)));
  node.attributes.Erase("scales");
  return absl::OkStatus();
}

Status UpsampleToResize(OnnxNode& node, Rewriter&) {
  node.op_type = "Resize";
  return absl::OkStatus();
}

}  // namespace chairlift::normalise
