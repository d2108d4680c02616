// A sum and the layer normalisation of it become one pass over the rows: chairlift::SkipLayerNorm
// (TurboTransformers §4.1). The sum stays an output where others read it.
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

// Input i is absent or a constant of `width` elements. (What is not constant might depend on the
// sum.)
bool IsVector(const Graph& graph, const Node& node, int i, const Dim& width) {
  if (i >= static_cast<int>(node.inputs.size()) || node.inputs[i] == kNoValue) return true;
  const Tensor* t = ConstantInput(graph, node, i);
  return t != nullptr && t->shape().rank() == 1 && width.known() && t->size() == width.value();
}

StatusOr<int> Run(Graph& graph, std::vector<std::string>& notes) {
  const OperatorDef* def = OperatorRegistry::Builtin().Find("chairlift", "SkipLayerNorm");
  if (def == nullptr) return 0;
  const Links links(graph);
  std::vector<bool> removed(graph.nodes.size(), false);
  int count = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& norm = graph.nodes[n];
    if (!Is(norm, "LayerNormalization")) continue;
    const Value& x = graph.values[norm.inputs[0]];
    const int add = links.producer(norm.inputs[0]);
    const int64_t axis = norm.attributes.Int("axis", -1);
    if (add < 0 || !Is(graph.nodes[add], "Add") || removed[add] || x.dtype != DType::kFloat ||
        !x.shape.has_rank() || (axis != -1 && axis != x.shape.rank() - 1)) {
      continue;
    }
    const std::vector<ValueId> terms = graph.nodes[add].inputs;
    if (!SameShape(graph.values[terms[0]].shape, graph.values[terms[1]].shape)) {
      notes.push_back(norm.Describe() + ": the sum before it broadcasts");
      continue;
    }
    if (norm.outputs.size() > 1) continue;  // mean and deviation are asked for
    const Dim& width = x.shape[x.shape.rank() - 1];
    if (!IsVector(graph, norm, 1, width) || !IsVector(graph, norm, 2, width)) continue;
    const ValueId sum = norm.inputs[0];
    const bool sum_is_read = links.SoleReader(sum) < 0;
    norm.inputs = {terms[0], terms[1], kNoValue, norm.inputs[1],
                   norm.inputs.size() > 2 ? norm.inputs[2] : kNoValue};
    if (sum_is_read) norm.outputs.push_back(sum);
    const float epsilon = norm.attributes.Float("epsilon", 1e-5f);
    norm.attributes = {};
    norm.attributes.Set("epsilon", epsilon);
    norm.def = def;
    removed[add] = true;
    ++count;
  }
  RemoveNodes(graph, removed);
  SortNodes(graph);
  return count;
}

}  // namespace

Pass FuseSkipLayerNorm() {
  return {"fuse_skip_layer_norm", "add and normalise rows in one pass over them", Run};
}

}  // namespace chairlift
