// Common part of passes that merge a node into the node that computes its input.
#ifndef CHAIRLIFT_GRAPH_PASSES_ABSORB_H_
#define CHAIRLIFT_GRAPH_PASSES_ABSORB_H_

#include <utility>
#include <vector>

#include "graph/passes/rewrite.h"

namespace chairlift {

class Absorber {
 protected:
  explicit Absorber(Graph& graph)
      : graph_(graph), links_(graph), removed_(graph.nodes.size(), false) {}

  static const OperatorDef* Fused(std::string_view name) {
    return OperatorRegistry::Builtin().Find("chairlift", name);
  }

  const SymbolicShape& shape(ValueId id) const { return graph_.values[id].shape; }

  // The node that computes the float32 value `id` for node n alone, and has no activation; else -1.
  int Open(ValueId id, int n) const {
    const int node = links_.producer(id);
    if (node < 0 || links_.SoleReader(id) != n || graph_.values[id].dtype != DType::kFloat) {
      return -1;
    }
    return graph_.nodes[node].attributes.String("activation", "").empty() ? node : -1;
  }

  // Replaces node n by `node`, as operator `def`, with n's own outputs.
  Node& MoveTo(int node, int n, const OperatorDef* def) {
    Node fused = std::move(graph_.nodes[node]);
    fused.def = def;
    fused.outputs = graph_.nodes[n].outputs;
    removed_[node] = true;
    graph_.nodes[n] = std::move(fused);
    return graph_.nodes[n];
  }

  static bool HasInput(const Node& node, size_t i) {
    return node.inputs.size() > i && node.inputs[i] != kNoValue;
  }
  static void SetInput(Node& node, size_t i, ValueId id) {
    if (node.inputs.size() <= i) node.inputs.resize(i + 1, kNoValue);
    node.inputs[i] = id;
  }

  Graph& graph_;
  const Links links_;
  std::vector<bool> removed_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_PASSES_ABSORB_H_
