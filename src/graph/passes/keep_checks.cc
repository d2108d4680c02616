// Keeps the checks that a pass would remove, so that invalid requests are still refused.
#include "graph/passes/keep_checks.h"

#include <algorithm>

#include "graph/passes/rewrite.h"
#include "ops/axis_map.h"

namespace chairlift {
namespace {

bool BroadcastsExactly(const SymbolicShape& in, const SymbolicShape& out) {
  if (!in.has_rank() || !out.has_rank() || in.rank() > out.rank()) return false;
  for (int i = 0; i < in.rank(); ++i) {
    const bool one = in[i].known() && in[i].value() == 1;
    if (!one && !in[i].Same(out[out.rank() - in.rank() + i])) return false;
  }
  return true;
}

// Whether the operands broadcast, whatever the request.
bool Broadcasts(const Graph& graph, const Node& node) {
  const SymbolicShape& out = graph.values[node.outputs[0]].shape;
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
    return id == kNoValue || BroadcastsExactly(graph.values[id].shape, out);
  });
}

// Strings may not be numbers, or too large together.
bool ReadsTexts(const Graph& graph, const Node& node) {
  return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
    return id != kNoValue && graph.values[id].dtype == DType::kBytes;
  });
}

// Whether it moves its only input, of any shape. Others divide a dimension, which must be a
// multiple of something.
bool MovesAnyShape(const Graph& graph, const Node& node) {
  if (!node.def->OnlyMoves() || node.inputs.size() != 1) return false;
  const SymbolicShape& shape = graph.values[node.inputs[0]].shape;
  return shape.has_rank() && (node.def->is_view || Is(node, "Transpose") || shape.concrete());
}

// Nodes that an output depends on after the removals.
std::vector<bool> Needed(const Graph& graph, const std::vector<Removal>& removals) {
  std::vector<bool> read(graph.values.size(), false), needed(graph.nodes.size(), false);
  for (const ValueId id : graph.outputs) read[id] = true;
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    needed[n] = std::any_of(node.outputs.begin(), node.outputs.end(),
                            [&](ValueId id) { return id != kNoValue && read[id]; });
    if (!needed[n]) continue;
    for (int i = 0; i < static_cast<int>(node.inputs.size()); ++i) {
      const bool reads = !removals[n].wanted || removals[n].kept_input == i;
      if (reads && node.inputs[i] != kNoValue) read[node.inputs[i]] = true;
    }
  }
  return needed;
}

}  // namespace

bool MayRefuse(const Graph& graph, const Node& node) {
  const auto is_size = [&](ValueId id) {
    return id == kNoValue || graph.values[id].elements || graph.values[id].is_constant();
  };
  const OperatorDef& def = *node.def;
  if (def.runs_bodies) return true;
  if (def.gives_sizes || MovesAnyShape(graph, node)) return false;
  if (std::all_of(node.outputs.begin(), node.outputs.end(), is_size)) return false;
  if (Is(node, "ConstantOfShape")) return !is_size(node.inputs[0]);
  if (Is(node, "Unsqueeze")) return ConstantInput(graph, node, 1) == nullptr;
  return !IsElementwise(def) || ReadsTexts(graph, node) || !Broadcasts(graph, node);
}

void KeepChecks(const Graph& graph, std::vector<Removal>& removals) {
  const std::vector<bool> before = Needed(graph, std::vector<Removal>(graph.nodes.size()));
  const std::vector<bool> after = Needed(graph, removals);
  // Whether it is computed from the output of a node that would be lost.
  std::vector<bool> checked(graph.values.size(), false);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    bool keep = before[n] && !after[n] && !removals[n].wanted && MayRefuse(graph, node);
    for (const ValueId id : node.inputs) keep = keep || (id != kNoValue && checked[id]);
    if (!keep) continue;
    removals[n].wanted = false;
    if (after[n]) continue;  // now it reads its inputs, so the lost node's check is not needed
    for (const ValueId id : node.outputs) {
      if (id != kNoValue) checked[id] = true;
    }
  }
}

}  // namespace chairlift
