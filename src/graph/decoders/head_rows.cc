#include "graph/decoders/head_rows.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "graph/passes/rewrite.h"
#include "ops/axis_map.h"

namespace chairlift::decoders {
namespace {

// The n of Reshape(x, [0, -1, n]).
std::optional<int64_t> RowsOf(const Graph& graph, const Node& node) {
  if (!Is(node, "Reshape") || node.attributes.Int("allowzero", 0) != 0) return std::nullopt;
  const auto shape = IntegersInput(graph, node, 1);
  if (!shape || shape->size() != 3 || (*shape)[0] != 0 || (*shape)[1] != -1 || (*shape)[2] < 1) {
    return std::nullopt;
  }
  return (*shape)[2];
}

// Whether it computes row by row, for any axes before the last.
bool WorksOnRows(const Graph& graph, const Node& node) {
  if (node.outputs.size() != 1) return false;
  if (IsElementwise(*node.def)) return true;
  if (Is(node, "LayerNormalization")) return node.attributes.Int("axis", -1) == -1;
  return Is(node, "ReduceMean") && node.attributes.Int("keepdims", 1) != 0 &&
         IntegersInput(graph, node, 1) == std::vector<int64_t>{-1};
}

// The reshape that ends the section that `first` starts, with `width` columns; −1 if something else
// reads the section or is read by it.
int EndOf(const Graph& graph, const Links& links, size_t first, int64_t width) {
  std::set<ValueId> within = {graph.nodes[first].outputs[0]};
  std::vector<ValueId> open(within.begin(), within.end());
  std::set<int> nodes, ends;
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    if (links.is_output(id)) return -1;
    for (const int n : links.readers(id)) {
      const Node& node = graph.nodes[static_cast<size_t>(n)];
      if (RowsOf(graph, node) == width && node.inputs[0] == id) {
        ends.insert(n);
      } else if (!WorksOnRows(graph, node)) {
        return -1;
      } else if (nodes.insert(n).second) {
        within.insert(node.outputs[0]);
        open.push_back(node.outputs[0]);
      }
    }
  }
  for (const int n : nodes) {
    for (const ValueId id : graph.nodes[static_cast<size_t>(n)].inputs) {
      if (id == kNoValue || within.contains(id)) continue;
      const Value& value = graph.values[static_cast<size_t>(id)];
      if (!value.is_constant() || value.constant.shape().rank() > 1) return -1;
    }
  }
  return ends.size() == 1 ? *ends.begin() : -1;
}

}  // namespace

int SplitHeadRows(Graph& graph) {
  const Links links(graph);
  int count = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const auto columns = RowsOf(graph, graph.nodes[n]);
    if (!columns) continue;
    const SymbolicShape& shape = graph.values[static_cast<size_t>(graph.nodes[n].inputs[0])].shape;
    if (!shape.has_rank() || shape.rank() != 3 || !shape[2].known() ||
        shape[2].value() % *columns != 0) {
      continue;
    }
    const int64_t width = shape[2].value();
    const int end = EndOf(graph, links, n, width);
    if (end < 0) continue;
    const auto reshaped = [&](size_t node, std::vector<int64_t> dims) {
      graph.nodes[node].inputs[1] = AddIntegers(graph, graph.nodes[node].name + "/heads", dims);
    };
    reshaped(n, {0, 0, width / *columns, *columns});
    reshaped(static_cast<size_t>(end), {0, 0, width});
    ++count;
  }
  return count;
}

}  // namespace chairlift::decoders
