// The engine of normalisation: selects and applies rules.
#include "graph/onnx/normalise.h"

#include "graph/onnx/contrib/contrib.h"
#include "graph/onnx/text_casts.h"

namespace chairlift {

namespace {

Status CheckForm(const OnnxNode& node) {
  if (!node.domain.empty()) return absl::OkStatus();
  for (const NormaliseRule& rule : NormaliseRules()) {
    if (rule.op_type != node.op_type || node.opset < rule.until) continue;
    for (const std::string_view attribute : rule.inputs_since) {
      if (attribute.empty() || !node.attributes.Has(attribute)) continue;
      return InvalidArgument(
          "its attribute '{}' is an input from opset {} on, and the model's is {}", attribute,
          rule.until, node.opset);
    }
  }
  return absl::OkStatus();
}

}  // namespace

Status Normalise(OnnxNode& node, Rewriter& rewriter) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckForm(node));
  if (IsContrib(node)) CHAIRLIFT_RETURN_IF_ERROR(NormaliseContrib(node, rewriter));
  while (node.domain.empty()) {
    const NormaliseRule* next = nullptr;
    for (const NormaliseRule& rule : NormaliseRules()) {
      if (rule.op_type == node.op_type && node.opset < rule.until &&
          (next == nullptr || rule.until < next->until)) {
        next = &rule;
      }
    }
    if (next == nullptr) break;
    CHAIRLIFT_RETURN_IF_ERROR(next->apply(node, rewriter));
    node.opset = next->until;
  }
  if (IsTextCast(node, rewriter)) return NormaliseTextCast(node, rewriter);
  return absl::OkStatus();
}

}  // namespace chairlift
