// Removes nodes that return their input unchanged: Identity, Dropout at inference, casts to the
// same type, moves without effect, arithmetic with neutral elements.
#include "graph/passes/keep_checks.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

// The input that the node returns as output 0, or -1. The shape of its output is derived from its
// inputs; the one declared in the file may be left over from another version of the model.
int HandsOn(const Graph& graph, const Node& node) {
  if (node.def->hands_on == nullptr || node.inputs.empty() || node.inputs[0] == kNoValue ||
      graph.values[node.inputs[0]].dtype != graph.values[node.outputs[0]].dtype) {
    return -1;
  }
  const std::vector<ValueInfo> inputs = InfosOf(graph, node.inputs);
  InferContext context(node.attributes, inputs, static_cast<int>(node.outputs.size()));
  if (!node.def->infer(context).ok()) return -1;
  std::vector<ValueInfo>& outputs = context.outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (node.outputs[i] == kNoValue) outputs[i] = ValueInfo{};
  }
  return node.def->hands_on(node.attributes, inputs, outputs);
}

StatusOr<int> RunRemoveIdentities(Graph& graph, std::vector<std::string>&) {
  std::vector<Removal> removals(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.outputs.empty() || node.outputs[0] == kNoValue) continue;
    removals[n].kept_input = HandsOn(graph, node);
    removals[n].wanted = removals[n].kept_input >= 0;
  }
  KeepChecks(graph, removals);
  std::vector<bool> removed(graph.nodes.size(), false);
  int count = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (!removals[n].wanted) continue;
    ReplaceReads(graph, node.outputs[0], node.inputs[static_cast<size_t>(removals[n].kept_input)]);
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
