// Control flow nodes and their sub-graphs.
#include "graph/bodies.h"

#include <cstdint>
#include <string>

namespace chairlift {
namespace {

// One sub-graph of a node that passes `inputs` values to it and takes its outputs.
struct Call {
  const Node& node;
  const Graph& body;
  int64_t inputs;
  int64_t outputs() const { return static_cast<int64_t>(body.outputs.size()); }
};

Status CheckOutputs(const Call& call, int64_t given) {
  if (static_cast<int64_t>(call.node.outputs.size()) <= given) return absl::OkStatus();
  return InvalidArgument("{} has {} outputs, but its body gives {}", call.node.Describe(),
                         call.node.outputs.size(), given);
}

Status CheckBranch(const Call& call, const std::string& name) {
  if (call.inputs != 1) {
    return InvalidArgument("{} has {} inputs, but the operator takes 1, its condition",
                           call.node.Describe(), call.inputs);
  }
  if (call.body.num_formal_inputs() != 0) {
    return InvalidArgument("{}: {} must not have inputs", call.node.Describe(), name);
  }
  return CheckOutputs(call, call.outputs());
}

Status CheckLoop(const Call& call) {
  const int64_t states = call.inputs - 2;
  if (states < 0 || call.body.num_formal_inputs() != call.inputs) {
    return InvalidArgument("{} passes {} inputs to a body that takes {}", call.node.Describe(),
                           call.inputs, call.body.num_formal_inputs());
  }
  if (call.outputs() < states + 1) {
    return InvalidArgument("{}: the body gives {} outputs, fewer than the condition and {} states",
                           call.node.Describe(), call.outputs(), states);
  }
  return CheckOutputs(call, call.outputs() - 1);
}

Status CheckScan(const Call& call) {
  const int64_t scanned = call.node.attributes.Int("num_scan_inputs", 0);
  if (scanned < 1 || scanned > call.inputs || call.inputs != call.body.num_formal_inputs()) {
    return InvalidArgument("{} passes {} inputs, {} of them scanned, to a body that takes {}",
                           call.node.Describe(), call.inputs, scanned,
                           call.body.num_formal_inputs());
  }
  if (call.outputs() < call.inputs - scanned) {
    return InvalidArgument("{}: the body gives {} outputs, fewer than its {} states",
                           call.node.Describe(), call.outputs(), call.inputs - scanned);
  }
  return CheckOutputs(call, call.outputs());
}

}  // namespace

Status CheckBodies(const Node& node) {
  const auto bodies = Subgraphs(node);
  if (!node.def->runs_bodies) {
    if (bodies.empty()) return absl::OkStatus();
    return InvalidArgument("{} cannot hold sub-graphs", node.Describe());
  }
  int64_t inputs = static_cast<int64_t>(node.inputs.size());
  for (const auto& [name, body] : bodies) {
    if (body == nullptr) return Internal("{}: {} is empty", node.Describe(), name);
    inputs -= body->num_captures;
  }
  if (inputs < 0) {
    return Internal("{} has {} inputs, fewer than its sub-graphs capture", node.Describe(),
                    node.inputs.size());
  }
  if (node.def->name == "If") {
    if (bodies.size() != 2 || bodies[0].first != "else_branch" ||
        bodies[1].first != "then_branch") {
      return InvalidArgument("{} needs the sub-graphs then_branch and else_branch, no others",
                             node.Describe());
    }
    for (const auto& [name, body] : bodies) {
      CHAIRLIFT_RETURN_IF_ERROR(CheckBranch({node, *body, inputs}, name));
    }
    return absl::OkStatus();
  }
  if (bodies.size() != 1 || bodies[0].first != "body") {
    return InvalidArgument("{} needs one sub-graph, body", node.Describe());
  }
  const Call call{node, *bodies[0].second, inputs};
  return node.def->name == "Loop" ? CheckLoop(call) : CheckScan(call);
}

const Value* FindText(const Graph& graph, bool constants) {
  for (const Value& value : graph.values) {
    if (value.dtype == DType::kBytes && (constants || !value.is_constant())) return &value;
  }
  for (const Node& node : graph.nodes) {
    for (const auto& [name, body] : Subgraphs(node)) {
      const Value* const inside = body == nullptr ? nullptr : FindText(*body, constants);
      if (inside != nullptr) return inside;
    }
  }
  return nullptr;
}

}  // namespace chairlift
