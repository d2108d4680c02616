// The engine of normalisation: selects and applies rules.
#include "graph/onnx/normalise.h"

#include "graph/onnx/contrib/contrib.h"
#include "graph/onnx/text_casts.h"

namespace chairlift {

Status Normalise(OnnxNode& node, Rewriter& rewriter) {
  if (IsContrib(node)) CHAIRLIFT_RETURN_IF_ERROR(NormaliseContrib(node, rewriter));
  // Which inputs a runtime could overwrite, before opset 6.
  if (node.domain.empty() && node.opset < 6) node.attributes.Erase("consumed_inputs");
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
