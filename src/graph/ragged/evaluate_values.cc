#include "graph/ragged/evaluate_values.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "graph/analysis/shapes.h"
#include "graph/evaluate.h"
#include "graph/passes/rewrite.h"

namespace chairlift::ragged {
namespace {

constexpr int64_t kMaxValueBytes = int64_t{256} << 20;
constexpr size_t kMaxLiveBytes = size_t{1} << 30;  // of all values at any time

// The nodes that `targets` depend on; with `cut`, without values that are used only for their
// shape.
StatusOr<std::vector<bool>> Needed(const Graph& graph, std::span<const ValueId> targets, bool cut) {
  const Links links(graph);
  std::vector<bool> needed(graph.nodes.size(), false);
  std::vector<ValueId> open(targets.begin(), targets.end());
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    const int n = links.producer(id);
    if (n < 0 || needed[static_cast<size_t>(n)]) continue;
    const Node& node = graph.nodes[static_cast<size_t>(n)];
    if (!node.def->deterministic) return Unimplemented("{} is random", node.Describe());
    if (node.def->runs_bodies || !Subgraphs(node).empty()) {
      return Unimplemented("{} is control flow", node.Describe());
    }
    needed[static_cast<size_t>(n)] = true;
    if (cut && node.def->gives_sizes) continue;
    for (const ValueId input : node.inputs) {
      if (input != kNoValue) open.push_back(input);
    }
  }
  return needed;
}

// Shape or Size of a value whose shape is known but which is not available.
StatusOr<Tensor> SizesAt(const Graph& graph, const Node& node,
                         const std::map<std::string, int64_t>& sizes) {
  const Value& value = graph.values[static_cast<size_t>(node.inputs[0])];
  if (!value.shape.has_rank()) return Unimplemented("the rank of '{}' is not known", value.name);
  analysis::Dims dims;
  for (const Dim& dim : value.shape.dims()) {
    const auto named = dim.is_symbol() ? sizes.find(dim.symbol()) : sizes.end();
    if (!dim.known() && named == sizes.end()) {
      return Unimplemented("the shape {} of '{}' cannot be followed", value.shape.ToString(),
                           value.name);
    }
    dims.push_back(analysis::Line::Number(dim.known() ? dim.value() : named->second));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const analysis::Dims given, analysis::SizesOf(node, dims));
  std::vector<int64_t> numbers;
  for (const analysis::Line& size : given) numbers.push_back(size.number);
  const auto count = static_cast<int64_t>(numbers.size());
  return Tensor::Of<int64_t>(Is(node, "Size") ? Shape{} : Shape{count},
                             std::span<const int64_t>(numbers));
}

}  // namespace

StatusOr<std::vector<int>> ReadInputs(const Graph& graph, ValueId value) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<bool> needed, Needed(graph, {&value, 1}, true));
  std::vector<bool> read(graph.values.size(), false);
  read[static_cast<size_t>(value)] = true;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!needed[n] || graph.nodes[n].def->gives_sizes) continue;
    for (const ValueId id : graph.nodes[n].inputs) {
      if (id != kNoValue) read[static_cast<size_t>(id)] = true;
    }
  }
  std::vector<int> inputs;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (read[static_cast<size_t>(graph.inputs[i])]) inputs.push_back(static_cast<int>(i));
  }
  return inputs;
}

StatusOr<std::vector<Tensor>> EvaluateValues(const Graph& graph, std::span<const ValueId> targets,
                                             const std::map<int, Tensor>& inputs,
                                             const std::map<std::string, int64_t>& sizes) {
  const bool cut = !sizes.empty();
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<bool> needed, Needed(graph, targets, cut));
  std::vector<Tensor> values(graph.values.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = graph.values[i].constant;
  for (const auto& [place, tensor] : inputs) {
    values[static_cast<size_t>(graph.inputs[static_cast<size_t>(place)])] = tensor;
  }
  // Values are freed when their last reader has run.
  std::vector<size_t> last(graph.values.size(), 0);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!needed[n] || (cut && graph.nodes[n].def->gives_sizes)) continue;
    for (const ValueId id : graph.nodes[n].inputs) {
      if (id != kNoValue) last[static_cast<size_t>(id)] = n;
    }
  }
  for (const ValueId id : targets) last[static_cast<size_t>(id)] = graph.nodes.size();
  WeightCache weights;
  SoloTeam team;
  size_t live = 0;
  std::vector<size_t> held(graph.values.size(), 0);  // of values computed here
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!needed[n]) continue;
    const Node& node = graph.nodes[n];
    if (cut && node.def->gives_sizes) {
      CHAIRLIFT_ASSIGN_OR_RETURN(values[static_cast<size_t>(node.outputs[0])],
                                 SizesAt(graph, node, sizes));
      continue;
    }
    std::vector<Tensor> arguments;
    for (const ValueId id : node.inputs) {
      arguments.push_back(id == kNoValue ? Tensor() : values[static_cast<size_t>(id)]);
      if (id != kNoValue && !arguments.back().present()) {
        return Unimplemented("{} reads '{}'", node.Describe(),
                             graph.values[static_cast<size_t>(id)].name);
      }
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> results,
                               EvaluateNode(node, arguments, weights, team, 0, kMaxValueBytes));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue) {
        held[static_cast<size_t>(node.outputs[i])] = results[i].byte_size();
        live += results[i].byte_size();
        values[static_cast<size_t>(node.outputs[i])] = std::move(results[i]);
      }
    }
    if (live > kMaxLiveBytes) {
      return ResourceExhausted("{} bytes of values at {}", live, node.Describe());
    }
    for (const ValueId id : node.inputs) {
      if (id == kNoValue || last[static_cast<size_t>(id)] != n) continue;
      live -= std::exchange(held[static_cast<size_t>(id)], 0);
      values[static_cast<size_t>(id)] = Tensor();
    }
  }
  std::vector<Tensor> results;
  for (const ValueId id : targets) results.push_back(values[static_cast<size_t>(id)]);
  return results;
}

}  // namespace chairlift::ragged
