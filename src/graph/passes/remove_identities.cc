// Nodes that hand on their input unchanged go: Identity, inference-time Dropout, casts to the same
// type, movements that move nothing, arithmetic with neutral elements.
#include <algorithm>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

bool KeepsShape(const Graph& graph, const Node& node) {
  return SameShape(graph.values[node.inputs[0]].shape, graph.values[node.outputs[0]].shape);
}

bool AllEqual(const std::optional<std::vector<int64_t>>& values, int64_t wanted) {
  return values &&
         std::all_of(values->begin(), values->end(), [&](int64_t v) { return v == wanted; });
}

bool TransposesNothing(const Graph& graph, const Node& node) {
  const SymbolicShape& shape = graph.values[node.inputs[0]].shape;
  if (!shape.has_rank()) return false;
  const std::vector<int64_t> order = node.attributes.Ints("perm");
  if (order.empty()) return shape.rank() <= 1;
  return std::is_sorted(order.begin(), order.end());
}

// Whether input `i` is a float constant of `neutral`, with nothing to broadcast.
bool IsNeutral(const Graph& graph, const Node& node, int i, double neutral) {
  return ScalarInput(graph, node, i) == neutral && node.inputs.size() == 2;
}

// The input that the node hands on as output 0, or -1.
int HandsOn(const Graph& graph, const Node& node) {
  if (!node.def->domain.empty() || node.inputs.empty() || node.inputs[0] == kNoValue) return -1;
  const std::string& op = node.def->name;
  const Value& in = graph.values[node.inputs[0]];
  const Value& out = graph.values[node.outputs[0]];
  if (op == "Identity") return 0;
  if (op == "Dropout") {
    return node.outputs.size() == 1 || node.outputs[1] == kNoValue ? 0 : -1;
  }
  if (in.dtype != out.dtype) return -1;
  if (op == "Cast" || op == "CastLike") return 0;
  if (op == "Concat" || op == "Sum" || op == "Max" || op == "Min" || op == "Mean") {
    return node.inputs.size() == 1 ? 0 : -1;
  }
  if (op == "Transpose") return TransposesNothing(graph, node) ? 0 : -1;
  if (op == "Pad") return AllEqual(IntegersInput(graph, node, 1), 0) ? 0 : -1;
  if (op == "Slice") {
    const bool forward = node.inputs.size() < 5 || node.inputs[4] == kNoValue ||
                         AllEqual(IntegersInput(graph, node, 4), 1);
    return forward && KeepsShape(graph, node) ? 0 : -1;
  }
  if (op == "Reshape" || op == "Flatten" || op == "Expand" || op == "Squeeze" ||
      op == "Unsqueeze" || op == "Tile") {
    return KeepsShape(graph, node) ? 0 : -1;
  }
  if (op == "Mul" || op == "Div" || op == "Add" || op == "Sub" || op == "Pow") {
    const double neutral = op == "Add" || op == "Sub" ? 0 : 1;
    if (KeepsShape(graph, node) && IsNeutral(graph, node, 1, neutral)) return 0;
    const bool either = op == "Mul" || op == "Add";
    if (either && IsNeutral(graph, node, 0, neutral) &&
        SameShape(graph.values[node.inputs[1]].shape, out.shape)) {
      return 1;
    }
  }
  return -1;
}

StatusOr<int> Run(Graph& graph, std::vector<std::string>&) {
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
  return {"remove_identities", "drop nodes that hand on their input unchanged", Run};
}

}  // namespace chairlift
