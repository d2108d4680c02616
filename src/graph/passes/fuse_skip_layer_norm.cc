// Fuses a sum and its layer normalisation into one pass over the rows: chairlift::SkipLayerNorm
// (TurboTransformers §4.1). The sum stays an output if others read it.
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "graph/passes/row_norm.h"

namespace chairlift {
namespace {

StatusOr<int> RunFuseSkipLayerNorm(Graph& graph, std::vector<std::string>& notes) {
  const OperatorDef* def = OperatorRegistry::Builtin().Find("chairlift", "SkipLayerNorm");
  const Links links(graph);
  std::vector<bool> removed(graph.nodes.size(), false);
  int count = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& norm = graph.nodes[n];
    if (!Is(norm, "LayerNormalization")) continue;
    const ValueId sum = norm.inputs[0];
    const int add = links.producer(sum);
    if (add < 0 || !Is(graph.nodes[add], "Add") || removed[add]) continue;
    const std::vector<ValueId> terms = graph.nodes[add].inputs;
    const SymbolicShape& a = graph.values[terms[0]].shape;
    const SymbolicShape& b = graph.values[terms[1]].shape;
    std::string problem = RowNormProblem(graph, norm);
    if (problem.empty() && !SameShape(a, b)) {
      problem = fmt::format("the sum before it broadcasts, {} + {}", a.ToString(), b.ToString());
    }
    if (!problem.empty()) {
      notes.push_back(norm.Describe() + ": " + problem);
      continue;
    }
    const bool sum_is_read = links.SoleReader(sum) < 0;
    SetRowNorm(norm, def,
               {terms[0], terms[1], kNoValue, norm.inputs[1],
                norm.inputs.size() > 2 ? norm.inputs[2] : kNoValue},
               sum_is_read ? sum : kNoValue);
    removed[add] = true;
    ++count;
  }
  RemoveNodes(graph, removed);
  SortNodes(graph);
  return count;
}

}  // namespace

Pass FuseSkipLayerNorm() {
  return {"fuse_skip_layer_norm", "add and normalise rows in one pass over them",
          RunFuseSkipLayerNorm};
}

}  // namespace chairlift
