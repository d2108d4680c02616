// Nodes that hand on their input unchanged go: Identity, inference-time Dropout, casts to the same
// type, movements that move nothing, arithmetic with neutral elements.
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

// The input that the node hands on as output 0, or -1.
int HandsOn(const Graph& graph, const Node& node) {
  if (node.def->hands_on == nullptr || node.inputs.empty() || node.inputs[0] == kNoValue ||
      graph.values[node.inputs[0]].dtype != graph.values[node.outputs[0]].dtype) {
    return -1;
  }
  return node.def->hands_on(node.attributes, InfosOf(graph, node.inputs),
                            InfosOf(graph, node.outputs));
}

StatusOr<int> RunRemoveIdentities(Graph& graph, std::vector<std::string>&) {
  std::vector<bool> removed(graph.nodes.size(), false);
  int count = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.outputs.empty() || node.outputs[0] == kNoValue) continue;
    const int i = HandsOn(graph, node);
    if (i < 0) continue;
    ReplaceReads(graph, node.outputs[0], node.inputs[i]);
    removed[n] = true;
    ++count;
  }
  RemoveNodes(graph, removed);
  return count;
}

}  // namespace

Pass RemoveIdentities() {
  return {"remove_identities", "drop nodes that hand on their input unchanged",
          RunRemoveIdentities};
}

}  // namespace chairlift
