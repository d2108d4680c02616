// Rules for gated activations: writes them as products. The passes that fuse products then apply.
#include "graph/onnx/normalise_rules.h"

namespace chairlift::normalise {
namespace {

// sigmoid(alpha · x)
StatusOr<ValueId> Gate(const OnnxNode& node, Rewriter& rewriter, ValueId x) {
  const float alpha = node.attributes.Float("alpha", 1.0f);
  if (alpha != 1.0f) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId factor, ScalarLike(rewriter, x, alpha));
    CHAIRLIFT_ASSIGN_OR_RETURN(x, rewriter.Add("Mul", kNewestOpset, {}, {x, factor}));
  }
  return rewriter.Add("Sigmoid", kNewestOpset, {}, {x});
}

Status CheckInputs(const OnnxNode& node, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (node.inputs.size() != count || node.inputs[i] == kNoValue) {
      return InvalidArgument("it takes {} inputs", count);
    }
  }
  return absl::OkStatus();
}

void BecomeProduct(OnnxNode& node, ValueId a, ValueId b) {
  node.op_type = "Mul";
  node.attributes = {};
  node.inputs = {a, b};
}

}  // namespace

Status SwishGate(OnnxNode& node, Rewriter& rewriter) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckInputs(node, 1));
  const ValueId x = node.inputs[0];
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId gate, Gate(node, rewriter, x));
  BecomeProduct(node, x, gate);
  return absl::OkStatus();
}

Status SwiGluGate(OnnxNode& node, Rewriter& rewriter) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckInputs(node, 2));
  const ValueId a = node.inputs[0], b = node.inputs[1];
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId gate, Gate(node, rewriter, a));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId swish, rewriter.Add("Mul", kNewestOpset, {}, {a, gate}));
  BecomeProduct(node, swish, b);
  return absl::OkStatus();
}

}  // namespace chairlift::normalise
