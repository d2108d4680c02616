#include "graph/onnx/text_casts.h"

#include "ops/element_type.h"

namespace chairlift {
namespace {

constexpr int64_t kOnnxString = 8;

// The type that the node casts to; kUndefined if there is none.
DType CastsTo(const OnnxNode& node, const Rewriter& rewriter) {
  if (node.op_type == "CastLike") {
    return node.inputs.size() < 2 ? DType::kUndefined : rewriter.info(node.inputs[1]).dtype;
  }
  const int64_t to = node.attributes.Int("to", 0);
  return to == kOnnxString ? DType::kBytes : ElementTypeOfOnnx(to);
}

}  // namespace

bool IsTextCast(const OnnxNode& node, const Rewriter& rewriter) {
  if (!node.domain.empty() || (node.op_type != "Cast" && node.op_type != "CastLike")) return false;
  if (node.inputs.empty() || node.inputs[0] == kNoValue) return false;
  return rewriter.info(node.inputs[0]).dtype == DType::kBytes ||
         CastsTo(node, rewriter) == DType::kBytes;
}

Status NormaliseTextCast(OnnxNode& node, Rewriter& rewriter) {
  const DType from = rewriter.info(node.inputs[0]).dtype, to = CastsTo(node, rewriter);
  node.inputs.resize(1);
  node.attributes = {};
  if (from == to) {
    node.op_type = "Identity";
    return absl::OkStatus();
  }
  if (from == DType::kUndefined) {
    return Unimplemented("a cast to strings of a value whose element type is not known");
  }
  const DType number = from == DType::kBytes ? to : from;
  if (!(kFullFloatTypes | kIntegerTypes).Contains(number) && to != DType::kBytes) {
    return Unimplemented(
        "a cast from strings to {} is not supported; casts to float32, float64 and integers are",
        DTypeName(number));
  }
  if (kHalfTypes.Contains(number)) {
    return Unimplemented("a cast from {} to strings is not supported; cast it to float32 first",
                         DTypeName(number));
  }
  node.domain = "chairlift";
  node.opset = 1;
  if (to == DType::kBytes) {
    node.op_type = "TextOfNumbers";
    return absl::OkStatus();
  }
  node.op_type = "NumbersOfText";
  node.attributes.Set("to", OnnxOfElementType(to));
  return absl::OkStatus();
}

}  // namespace chairlift
