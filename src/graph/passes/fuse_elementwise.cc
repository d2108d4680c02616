// Fuses elementwise operators whose intermediate results nothing else reads into one node, which
// passes over memory once: chairlift::FusedElementwise.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "ops/elementwise/fused_elementwise.h"

namespace chairlift {
namespace {

// A node as a step: its parameters and its operands.
struct Candidate {
  FusedStep step;
  std::vector<ValueId> operands;
};

class ElementwiseFuser {
 public:
  explicit ElementwiseFuser(Graph& graph)
      : graph_(graph),
        fused_(OperatorRegistry::Builtin().Find("chairlift", "FusedElementwise")),
        links_(graph),
        removed_(graph.nodes.size(), false) {}

  // Starts at the end, so that a node has been merged into its readers, if possible, before its own
  // turn.
  int Run() {
    int count = 0;
    for (int n = static_cast<int>(graph_.nodes.size()) - 1; n >= 0; --n) {
      if (!removed_[n] && FuseInto(n)) ++count;
    }
    RemoveNodes(graph_, removed_);
    return count;
  }

 private:
  std::optional<Candidate> CandidateOf(const Node& node) const {
    if (node.outputs.size() != 1 || node.outputs[0] == kNoValue ||
        graph_.values[node.outputs[0]].dtype != DType::kFloat) {
      return std::nullopt;
    }
    auto step = StepOf(*node.def, node.attributes, InfosOf(graph_, node.inputs));
    if (!step) return std::nullopt;
    std::vector<ValueId> operands;
    for (const int64_t i : step->operands) {
      if (i >= 0) operands.push_back(node.inputs[static_cast<size_t>(i)]);
    }
    return Candidate{*std::move(step), std::move(operands)};
  }

  // Nodes that compute only for each other, by number.
  using Group = std::map<int, Candidate>;

  // The values that the group reads but does not compute, without duplicates.
  std::vector<ValueId> InputsOf(const Group& group) const {
    std::vector<ValueId> inputs;
    for (const auto& [n, candidate] : group) {
      for (ValueId id : candidate.operands) {
        if (group.contains(links_.producer(id))) continue;
        if (std::find(inputs.begin(), inputs.end(), id) == inputs.end()) inputs.push_back(id);
      }
    }
    return inputs;
  }

  // A node that may join the group that ends in `root`; every result has the shape of `root`.
  std::optional<Candidate> Joins(int n, const Group& group, int root) const {
    const Node& node = graph_.nodes[n];
    auto candidate = CandidateOf(node);
    if (!candidate) return std::nullopt;
    const ValueId out = node.outputs[0];
    const auto& readers = links_.readers(out);
    if (links_.is_output(out) ||
        !std::all_of(readers.begin(), readers.end(), [&](int r) { return group.contains(r); }) ||
        !SameShape(graph_.values[out].shape, graph_.values[graph_.nodes[root].outputs[0]].shape)) {
      return std::nullopt;
    }
    return candidate;
  }

  Group GroupOf(int root) const {
    Group group;
    auto last = CandidateOf(graph_.nodes[root]);
    if (!last) return group;
    group.emplace(root, *std::move(last));
    // The latest candidate: all its readers have been tried.
    std::vector<int> tried;
    while (group.size() < FusedProgram::kMaxSteps) {
      int next = -1;
      for (ValueId id : InputsOf(group)) next = std::max(next, Untried(links_.producer(id), tried));
      if (next < 0) break;
      tried.push_back(next);
      auto candidate = Joins(next, group, root);
      if (!candidate) continue;
      group.emplace(next, *std::move(candidate));
      if (InputsOf(group).size() > FusedProgram::kMaxInputs) group.erase(next);
    }
    return group;
  }

  static int Untried(int n, const std::vector<int>& tried) {
    return std::find(tried.begin(), tried.end(), n) == tried.end() ? n : -1;
  }

  bool FuseInto(int root) {
    Group group = GroupOf(root);
    if (group.size() < 2) return false;
    std::vector<ValueId> inputs = InputsOf(group);
    // First the operand that the result may overwrite.
    const ValueId out = graph_.nodes[root].outputs[0];
    std::stable_partition(inputs.begin(), inputs.end(), [&](ValueId id) {
      return !graph_.values[id].is_constant() && graph_.values[id].dtype == DType::kFloat &&
             SameShape(graph_.values[id].shape, graph_.values[out].shape);
    });
    std::map<ValueId, int64_t> number;
    for (ValueId id : inputs) number.emplace(id, static_cast<int64_t>(number.size()));
    FusedProgram program;
    for (auto& [n, candidate] : group) {
      for (size_t i = 0; i < candidate.operands.size(); ++i) {
        candidate.step.operands[i] = number.at(candidate.operands[i]);
      }
      program.steps.push_back(std::move(candidate.step));
      number.emplace(graph_.nodes[n].outputs[0], static_cast<int64_t>(number.size()));
      removed_[n] = n != root;
    }
    Node& node = graph_.nodes[root];
    node.def = fused_;
    node.attributes = {};
    program.Store(node.attributes);
    node.inputs = std::move(inputs);
    return true;
  }

  Graph& graph_;
  const OperatorDef* fused_;
  const Links links_;
  std::vector<bool> removed_;
};

StatusOr<int> RunFuseElementwise(Graph& graph, std::vector<std::string>&) {
  return ElementwiseFuser(graph).Run();
}

}  // namespace

Pass FuseElementwise() {
  return {"fuse_elementwise", "compute chains of element-wise operators in one pass over memory",
          RunFuseElementwise};
}

}  // namespace chairlift
