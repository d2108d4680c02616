// Replaces an If with a constant condition by the branch that it takes.
#include <utility>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

// Appends the nodes of `body` to `nodes` and its values to `graph`; `arguments` has one value per
// input. Returns the body's outputs as values of the graph.
std::vector<ValueId> Splice(Graph& graph, std::vector<Node>& nodes, const Graph& body,
                            const std::string& prefix, std::span<const ValueId> arguments) {
  std::vector<ValueId> renamed(body.values.size(), kNoValue);
  for (size_t i = 0; i < arguments.size(); ++i) renamed[body.inputs[i]] = arguments[i];
  for (size_t id = 0; id < body.values.size(); ++id) {
    if (renamed[id] != kNoValue) continue;
    Value value = body.values[id];
    value.name = prefix + "/" + value.name;
    renamed[id] = graph.AddValue(std::move(value));
  }
  const auto rename = [&](std::vector<ValueId>& ids) {
    for (ValueId& id : ids) {
      if (id != kNoValue) id = renamed[id];
    }
  };
  for (Node node : body.nodes) {
    node.name = prefix + "/" + node.name;
    rename(node.inputs);
    rename(node.outputs);
    nodes.push_back(std::move(node));
  }
  std::vector<ValueId> outputs = body.outputs;
  rename(outputs);
  return outputs;
}

StatusOr<int> RunSelectConstantBranches(Graph& graph, std::vector<std::string>&) {
  int count = 0;
  std::vector<Node> nodes;
  std::vector<std::pair<ValueId, ValueId>> replaced;
  for (Node& node : graph.nodes) {
    const Tensor* condition = Is(node, "If") ? ConstantInput(graph, node, 0) : nullptr;
    const auto bodies = Subgraphs(node);  // else_branch, then_branch
    if (condition == nullptr || condition->dtype() != DType::kBool || condition->size() != 1 ||
        bodies.size() != 2) {
      nodes.push_back(std::move(node));
      continue;
    }
    const bool taken = *condition->data<bool>();
    const Graph& body = *bodies[taken ? 1 : 0].second;
    const auto captures = std::span<const ValueId>(node.inputs).subspan(1);
    const size_t otherwise = static_cast<size_t>(bodies[0].second->num_captures);
    const size_t then = static_cast<size_t>(bodies[1].second->num_captures);
    if (captures.size() != otherwise + then || body.num_formal_inputs() != 0 ||
        body.outputs.size() < node.outputs.size()) {
      return Internal("{}: its branches do not fit it", node.Describe());
    }
    const std::vector<ValueId> outputs =
        Splice(graph, nodes, body, node.name,
               taken ? captures.subspan(otherwise) : captures.first(otherwise));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue) replaced.emplace_back(node.outputs[i], outputs[i]);
    }
    ++count;
  }
  graph.nodes = std::move(nodes);
  // In reverse order: a branch may return the result of an earlier one.
  for (auto it = replaced.rbegin(); it != replaced.rend(); ++it) {
    ReplaceReads(graph, it->first, it->second);
  }
  return count;
}

}  // namespace

Pass SelectConstantBranches() {
  return {"select_constant_branches", "replace an If of known condition by the branch it takes",
          RunSelectConstantBranches};
}

}  // namespace chairlift
