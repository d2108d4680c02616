#include "runtime/joined_rows.h"

#include <algorithm>

namespace chairlift {
namespace {

// How often a value is read by nodes or as an output.
int Readers(const Graph& graph, ValueId id) {
  auto readers = std::count(graph.outputs.begin(), graph.outputs.end(), id);
  for (const Node& node : graph.nodes) {
    readers += std::count(node.inputs.begin(), node.inputs.end(), id);
  }
  return static_cast<int>(readers);
}

bool HasKnownRows(const Value& value) {
  return value.shape.has_rank() && value.shape.rank() == 2 && value.shape[1].known();
}

bool JoinsInputs(const Graph& graph, const Node& node) {
  if (node.def->name != "Concat" || !node.def->domain.empty() || node.inputs.size() < 2) {
    return false;
  }
  const int64_t axis = node.attributes.Int("axis", 0);
  if ((axis != 1 && axis != -1) || !HasKnownRows(graph.values[node.outputs[0]])) return false;
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
    const bool is_input =
        std::find(graph.inputs.begin(), graph.inputs.end(), id) != graph.inputs.end();
    return is_input && HasKnownRows(graph.values[id]) && Readers(graph, id) == 1;
  });
}

}  // namespace

std::vector<std::vector<int>> JoinRows(Graph& graph) {
  const std::vector<ValueId> before = graph.inputs;
  std::vector<std::vector<int>> sources;
  for (size_t i = 0; i < before.size(); ++i) sources.push_back({static_cast<int>(i)});
  if (graph.num_captures > 0) return sources;
  const auto place = [&graph](ValueId id) {
    return std::find(graph.inputs.begin(), graph.inputs.end(), id) - graph.inputs.begin();
  };
  std::erase_if(graph.nodes, [&](const Node& node) {
    if (!JoinsInputs(graph, node)) return false;
    std::vector<int> joined;
    for (const ValueId id : node.inputs) {
      joined.push_back(
          static_cast<int>(std::find(before.begin(), before.end(), id) - before.begin()));
    }
    const auto first = place(node.inputs[0]);
    graph.inputs[static_cast<size_t>(first)] = node.outputs[0];
    sources[static_cast<size_t>(first)] = std::move(joined);
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      const auto at = place(node.inputs[i]);
      graph.inputs.erase(graph.inputs.begin() + at);
      sources.erase(sources.begin() + at);
    }
    return true;
  });
  return sources;
}

}  // namespace chairlift
