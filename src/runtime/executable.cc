#include "runtime/executable.h"

#include <map>

#include "graph/evaluate.h"
#include "runtime/control_flow.h"

namespace chairlift {

struct Executable::Impl {
  Graph graph;
  std::vector<SymbolicSpec> inputs;
  std::vector<SymbolicSpec> outputs;
  std::vector<PassReport> reports;
  WeightCache weights;

  Status CheckInputs(std::span<const Tensor> given) const;
  StatusOr<std::vector<Tensor>> RunGraph(const Graph& graph, std::span<const Tensor> inputs,
                                         Team& team, int worker);
};

namespace {

std::vector<SymbolicSpec> Specs(const Graph& graph, std::span<const ValueId> ids) {
  std::vector<SymbolicSpec> out;
  for (ValueId id : ids) {
    const Value& v = graph.values[id];
    out.push_back({v.name, v.dtype, v.shape});
  }
  return out;
}

size_t ConstantBytes(const Graph& graph) {
  size_t bytes = 0;
  for (const Value& v : graph.values) bytes += v.constant.byte_size();
  for (const Node& node : graph.nodes) {
    for (const auto& [name, body] : Subgraphs(node)) bytes += ConstantBytes(*body);
  }
  return bytes;
}

}  // namespace

Status Executable::Impl::CheckInputs(std::span<const Tensor> given) const {
  if (given.size() != inputs.size()) {
    return InvalidArgument("{} inputs given, the model takes {}", given.size(), inputs.size());
  }
  std::map<std::string, std::pair<int64_t, size_t>> symbols;  // value, input that set it
  for (size_t i = 0; i < given.size(); ++i) {
    const SymbolicSpec& spec = inputs[i];
    const Tensor& t = given[i];
    if (t.dtype() != spec.dtype) {
      return InvalidArgument("input '{}' has element type {}, the model takes {}", spec.name,
                             DTypeName(t.dtype()), DTypeName(spec.dtype));
    }
    if (!spec.shape.has_rank()) continue;
    bool fits = t.shape().rank() == spec.shape.rank();
    for (int d = 0; fits && d < spec.shape.rank(); ++d) {
      const Dim& dim = spec.shape[d];
      if (dim.known()) fits = dim.value() == t.shape()[d];
      if (!dim.is_symbol()) continue;
      const auto [it, added] = symbols.emplace(dim.symbol(), std::pair{t.shape()[d], i});
      if (!added && it->second.first != t.shape()[d]) {
        return InvalidArgument(
            "input '{}' has shape {}, the model takes {}, and '{}' is {} in input '{}'", spec.name,
            t.shape().ToString(), spec.shape.ToString(), dim.symbol(), it->second.first,
            inputs[it->second.second].name);
      }
    }
    if (!fits) {
      return InvalidArgument("input '{}' has shape {}, the model takes {}", spec.name,
                             t.shape().ToString(), spec.shape.ToString());
    }
  }
  return absl::OkStatus();
}

StatusOr<std::vector<Tensor>> Executable::Impl::RunGraph(const Graph& graph,
                                                         std::span<const Tensor> inputs, Team& team,
                                                         int worker) {
  std::vector<Tensor> values(graph.values.size());
  std::vector<int> last_use(graph.values.size(), -1);
  for (size_t i = 0; i < graph.values.size(); ++i) values[i] = graph.values[i].constant;
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs[i]] = inputs[i];
  const int num_nodes = static_cast<int>(graph.nodes.size());
  for (int n = 0; n < num_nodes; ++n) {
    for (ValueId id : graph.nodes[n].inputs) {
      if (id != kNoValue) last_use[id] = n;
    }
  }
  for (ValueId id : graph.outputs) last_use[id] = num_nodes;

  const auto run_subgraph = [&](const Graph& body, std::span<const Tensor> arguments) {
    return RunGraph(body, arguments, team, worker);
  };
  std::vector<Tensor> arguments;
  for (int n = 0; n < num_nodes; ++n) {
    const Node& node = graph.nodes[n];
    arguments.clear();
    for (ValueId id : node.inputs) arguments.push_back(id == kNoValue ? Tensor() : values[id]);
    CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> results,
                               IsControlFlow(node)
                                   ? RunControlFlow(node, arguments, run_subgraph)
                                   : EvaluateNode(node, arguments, weights, team, worker));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue) values[node.outputs[i]] = std::move(results[i]);
    }
    for (ValueId id : node.inputs) {
      if (id != kNoValue && last_use[id] == n) values[id] = Tensor();
    }
  }
  std::vector<Tensor> outputs;
  for (ValueId id : graph.outputs) outputs.push_back(values[id]);
  return outputs;
}

Executable::Executable(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executable::~Executable() = default;

StatusOr<std::unique_ptr<Executable>> Executable::Create(Graph graph, const ExecutableOptions&) {
  auto impl = std::make_unique<Impl>();
  impl->graph = std::move(graph);
  impl->inputs = Specs(impl->graph, impl->graph.inputs);
  impl->outputs = Specs(impl->graph, impl->graph.outputs);
  return std::unique_ptr<Executable>(new Executable(std::move(impl)));
}

const std::vector<SymbolicSpec>& Executable::inputs() const { return impl_->inputs; }
const std::vector<SymbolicSpec>& Executable::outputs() const { return impl_->outputs; }
const Graph& Executable::graph() const { return impl_->graph; }
const std::vector<PassReport>& Executable::pass_reports() const { return impl_->reports; }

StatusOr<std::vector<Tensor>> Executable::Run(std::span<const Tensor> inputs, Team& team,
                                              int worker, Arena&) {
  CHAIRLIFT_RETURN_IF_ERROR(impl_->CheckInputs(inputs));
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> outputs,
                             impl_->RunGraph(impl_->graph, inputs, team, worker));
  // What only passes through (an input, a constant, a view of them) is copied: callers may write
  // to the outputs, and to the inputs once the run is over.
  for (Tensor& t : outputs) t = t.Clone();
  return outputs;
}

StatusOr<PlanStats> Executable::Prepare(std::span<const Shape>, int) {
  PlanStats stats;
  stats.steps = static_cast<int>(impl_->graph.nodes.size());
  return stats;
}

size_t Executable::weight_bytes() const {
  return ConstantBytes(impl_->graph) + impl_->weights.byte_size();
}

}  // namespace chairlift
