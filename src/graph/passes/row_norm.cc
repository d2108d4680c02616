#include "graph/passes/row_norm.h"

#include <utility>

#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

// Whether input i is absent or a constant of `width` elements.
bool IsVector(const Graph& graph, const Node& node, int i, const Dim& width) {
  if (i >= static_cast<int>(node.inputs.size()) || node.inputs[i] == kNoValue) return true;
  const Tensor* t = ConstantInput(graph, node, i);
  return t != nullptr && t->shape().rank() == 1 && width.known() && t->size() == width.value();
}

}  // namespace

std::string RowNormProblem(const Graph& graph, const Node& norm) {
  const Value& x = graph.values[norm.inputs[0]];
  if (x.dtype != DType::kFloat) {
    return fmt::format("it normalises {}, not float32", DTypeName(x.dtype));
  }
  if (!x.shape.has_rank()) return "the rank of its input is not known";
  const int64_t axis = norm.attributes.Int("axis", -1);
  if (axis != -1 && axis != x.shape.rank() - 1) {
    return fmt::format("it normalises {} from axis {} on, not the last axis alone",
                       x.shape.ToString(), axis);
  }
  if (norm.outputs.size() > 1) return "its mean and deviation are asked for";
  const Dim& width = x.shape[x.shape.rank() - 1];
  if (!IsVector(graph, norm, 1, width) || !IsVector(graph, norm, 2, width)) {
    return "its scale and shift are not constants, one value a column";
  }
  return {};
}

void SetRowNorm(Node& norm, const OperatorDef* def, std::vector<ValueId> inputs, ValueId sum) {
  const float epsilon = norm.attributes.Float("epsilon", 1e-5f);
  norm.def = def;
  norm.inputs = std::move(inputs);
  if (sum != kNoValue) norm.outputs.push_back(sum);
  norm.attributes = {};
  norm.attributes.Set("epsilon", epsilon);
}

}  // namespace chairlift
