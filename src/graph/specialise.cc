#include "graph/specialise.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "graph/infer.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

// A value that becomes known may decide the next branch: the maximum number of rounds.
constexpr int kMaxRewriteRounds = 16;

StatusOr<std::vector<ValueId>::iterator> FindInput(Graph& graph, const std::string& name) {
  const auto found = std::find_if(graph.inputs.begin(), graph.inputs.end(),
                                  [&](ValueId id) { return graph.values[id].name == name; });
  if (found == graph.inputs.end()) return NotFound("the model has no input '{}' to fix", name);
  return found;
}

Status FixInput(Graph& graph, const std::string& name, const Tensor& tensor) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto found, FindInput(graph, name));
  Value& value = graph.values[*found];
  if (tensor.dtype() != value.dtype) {
    return InvalidArgument("input '{}' is {}, but is fixed to a {}", name, DTypeName(value.dtype),
                           DTypeName(tensor.dtype()));
  }
  const SymbolicShape given(tensor.shape());
  bool fits = !value.shape.has_rank() || value.shape.rank() == given.rank();
  for (int i = 0; fits && value.shape.has_rank() && i < given.rank(); ++i) {
    fits = !value.shape[i].known() || value.shape[i].Same(given[i]);
  }
  if (!fits) {
    return InvalidArgument("input '{}' has the shape {}, but is fixed to one of {}", name,
                           value.shape.ToString(), given.ToString());
  }
  value.shape = given;
  value.elements.reset();
  value.constant = tensor;
  graph.inputs.erase(found);
  return absl::OkStatus();
}

Status FixDimension(Graph& graph, const std::string& symbol, int64_t size) {
  if (size < 1) return InvalidArgument("dimension '{}' cannot be {}", symbol, size);
  bool found = false;
  // A name means one number everywhere.
  for (Value& value : graph.values) {
    for (int i = 0; value.shape.has_rank() && i < value.shape.rank(); ++i) {
      if (!value.shape[i].is_symbol() || value.shape[i].symbol() != symbol) continue;
      value.shape[i] = Dim(size);
      found = true;
    }
  }
  return found ? absl::OkStatus() : NotFound("the model has no dimension '{}' to fix", symbol);
}

// Forgets everything about values except constants and the graph's own inputs: sizes may be written
// in symbols that are no longer valid.
void Forget(Graph& graph, bool inputs_too) {
  std::vector<bool> keep(graph.values.size(), false);
  if (!inputs_too) {
    for (ValueId id : graph.inputs) keep[id] = true;
  }
  for (size_t id = 0; id < graph.values.size(); ++id) {
    Value& value = graph.values[id];
    if (keep[id] || value.is_constant()) continue;
    value.shape = SymbolicShape();
    value.elements.reset();
  }
  for (Node& node : graph.nodes) {
    for (const auto& [name, body] : Subgraphs(node)) {
      auto copy = std::make_shared<Graph>(*body);
      Forget(*copy, true);
      node.attributes.Set(name, std::shared_ptr<const Graph>(std::move(copy)));
    }
  }
}

// Like InferShapes(), but an If may have a branch for other shapes, which may turn out not to be
// taken. An If with two such branches gives no information.
Status InferOpenShapes(Graph& graph) {
  InferBudget budget{.open_branches = true};
  budget.nodes_left += 16 * static_cast<int64_t>(graph.nodes.size());
  for (Node& node : graph.nodes) {
    Status status = InferNode(graph, node, budget);
    if (!status.ok() && !(Is(node, "If") && absl::IsInvalidArgument(status))) return status;
  }
  return absl::OkStatus();
}

// Computes what is known and selects the resulting branches.
Status Simplify(Graph& graph) {
  const std::vector<Pass> passes = {RecogniseQuantized(),     RecogniseBlockwise(),
                                    FoldConstants(),          ShareConstantsWithBodies(),
                                    SelectConstantBranches(), RemoveDeadNodes()};
  CHAIRLIFT_RETURN_IF_ERROR(InferOpenShapes(graph));
  for (int round = 0, rewrites = 1; round < kMaxRewriteRounds && rewrites > 0; ++round) {
    rewrites = 0;
    for (const Pass& pass : passes) {
      std::vector<std::string> notes;
      CHAIRLIFT_ASSIGN_OR_RETURN(const int made, pass.run(graph, notes));
      if (made == 0) continue;
      rewrites += made;
      CHAIRLIFT_RETURN_IF_ERROR(Verify(graph));
      CHAIRLIFT_RETURN_IF_ERROR(InferOpenShapes(graph));
    }
  }
  return InferShapes(graph);
}

}  // namespace

Status InferTakenBranches(Graph& graph) {
  Status status = InferShapes(graph);
  if (!absl::IsInvalidArgument(status)) return status;
  const bool branches = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                                    [](const Node& node) { return Is(node, "If"); });
  return branches ? Simplify(graph) : status;
}

Status Specialise(Graph& graph, const std::map<std::string, Tensor>& inputs,
                  const std::map<std::string, int64_t>& dims) {
  for (const auto& [name, tensor] : inputs) {
    CHAIRLIFT_RETURN_IF_ERROR(FixInput(graph, name, tensor));
  }
  for (const auto& [symbol, size] : dims) {
    CHAIRLIFT_RETURN_IF_ERROR(FixDimension(graph, symbol, size));
  }
  if (inputs.empty() && dims.empty()) return absl::OkStatus();
  return Simplify(graph);
}

Status SpecialiseShapes(Graph& graph, const std::map<std::string, Tensor>& inputs,
                        const std::map<std::string, SymbolicShape>& shapes) {
  for (const auto& [name, tensor] : inputs) {
    CHAIRLIFT_RETURN_IF_ERROR(FixInput(graph, name, tensor));
  }
  for (const auto& [name, shape] : shapes) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const auto found, FindInput(graph, name));
    graph.values[*found].shape = shape;
  }
  Forget(graph, false);
  return Simplify(graph);
}

}  // namespace chairlift
