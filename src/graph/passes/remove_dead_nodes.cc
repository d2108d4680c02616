// Removes nodes that no output depends on, and values and outputs that nothing reads.
#include <algorithm>
#include <utility>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

void DropUnusedValues(Graph& graph) {
  std::vector<bool> used(graph.values.size(), false);
  const auto use = [&](const std::vector<ValueId>& ids) {
    for (ValueId id : ids) {
      if (id != kNoValue) used[id] = true;
    }
  };
  use(graph.inputs);
  use(graph.outputs);
  for (const Node& node : graph.nodes) {
    use(node.inputs);
    use(node.outputs);
  }
  std::vector<ValueId> renamed(graph.values.size(), kNoValue);
  std::vector<Value> kept;
  for (size_t id = 0; id < graph.values.size(); ++id) {
    if (!used[id]) continue;
    renamed[id] = static_cast<ValueId>(kept.size());
    kept.push_back(std::move(graph.values[id]));
  }
  graph.values = std::move(kept);
  const auto rename = [&](std::vector<ValueId>& ids) {
    for (ValueId& id : ids) {
      if (id != kNoValue) id = renamed[id];
    }
  };
  rename(graph.inputs);
  rename(graph.outputs);
  for (Node& node : graph.nodes) {
    rename(node.inputs);
    rename(node.outputs);
  }
}

StatusOr<int> RunRemoveDeadNodes(Graph& graph, std::vector<std::string>&) {
  std::vector<bool> read(graph.values.size(), false);
  std::vector<bool> removed(graph.nodes.size(), false);
  for (ValueId id : graph.outputs) read[id] = true;
  int count = 0;
  for (int n = static_cast<int>(graph.nodes.size()) - 1; n >= 0; --n) {
    Node& node = graph.nodes[n];
    const auto is_read = [&](ValueId id) { return id != kNoValue && read[id]; };
    if (std::none_of(node.outputs.begin(), node.outputs.end(), is_read)) {
      removed[n] = true;
      ++count;
      continue;
    }
    for (ValueId id : node.inputs) {
      if (id != kNoValue) read[id] = true;
    }
    // Optional outputs that nothing reads are not requested.
    if (node.def->max_outputs == OperatorDef::kVariadic) continue;
    for (int i = std::max(1, node.def->min_outputs); i < static_cast<int>(node.outputs.size());
         ++i) {
      if (!is_read(node.outputs[i])) node.outputs[i] = kNoValue;
    }
  }
  RemoveNodes(graph, removed);
  DropUnusedValues(graph);
  return count;
}

}  // namespace

Pass RemoveDeadNodes() {
  return {"remove_dead_nodes", "drop what no output depends on", RunRemoveDeadNodes};
}

}  // namespace chairlift
