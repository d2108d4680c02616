#include "graph/passes/rewrite.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <utility>

#include "ops/input_values.h"

namespace chairlift {

Links::Links(const Graph& graph)
    : producers_(graph.values.size(), -1),
      readers_(graph.values.size()),
      is_output_(graph.values.size(), false) {
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    for (ValueId id : graph.nodes[n].inputs) {
      if (id != kNoValue) readers_[id].push_back(n);
    }
    for (ValueId id : graph.nodes[n].outputs) {
      if (id != kNoValue) producers_[id] = n;
    }
  }
  for (ValueId id : graph.outputs) is_output_[id] = true;
}

bool Is(const Node& node, std::string_view name, std::string_view domain) {
  return node.def->name == name && node.def->domain == domain;
}

const Tensor* ConstantInput(const Graph& graph, const Node& node, int i) {
  if (i >= static_cast<int>(node.inputs.size()) || node.inputs[i] == kNoValue) return nullptr;
  const Value& value = graph.values[node.inputs[i]];
  return value.is_constant() ? &value.constant : nullptr;
}

std::optional<double> ScalarInput(const Graph& graph, const Node& node, int i) {
  const Tensor* t = ConstantInput(graph, node, i);
  return t != nullptr ? ScalarValue(*t) : std::nullopt;
}

std::optional<std::vector<int64_t>> IntegersInput(const Graph& graph, const Node& node, int i) {
  const Tensor* t = ConstantInput(graph, node, i);
  if (t == nullptr) return std::nullopt;
  if (t->dtype() == DType::kInt64) {
    const auto v = t->values<int64_t>();
    return std::vector<int64_t>(v.begin(), v.end());
  }
  if (t->dtype() == DType::kInt32) {
    const auto v = t->values<int32_t>();
    return std::vector<int64_t>(v.begin(), v.end());
  }
  return std::nullopt;
}

std::vector<ValueInfo> InfosOf(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<ValueInfo> infos;
  infos.reserve(ids.size());
  for (ValueId id : ids) infos.push_back(id == kNoValue ? ValueInfo{} : graph.values[id].info());
  return infos;
}

ValueId AddConstant(Graph& graph, const std::string& name, Tensor t) {
  Value value{.name = name, .dtype = t.dtype(), .shape = SymbolicShape(t.shape())};
  value.constant = std::move(t);
  return graph.AddValue(std::move(value));
}

ValueId AddIntegers(Graph& graph, const std::string& name, std::span<const int64_t> values) {
  return AddConstant(graph, name,
                     Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values));
}

ValueId AddNode(Graph& graph, const std::string& name, const OperatorDef* def,
                std::vector<ValueId> inputs, Attributes attributes) {
  const ValueId output = graph.AddValue({.name = name});
  graph.nodes.push_back({name, def, std::move(attributes), std::move(inputs), {output}});
  return output;
}

ValueId AddNode(Graph& graph, const std::string& name, std::string_view op,
                std::vector<ValueId> inputs, Attributes attributes, std::string_view domain) {
  return AddNode(graph, name, OperatorRegistry::Builtin().Find(domain, op), std::move(inputs),
                 std::move(attributes));
}

Attributes Attribute(std::string name, AttributeValue value) {
  Attributes attributes;
  attributes.Set(std::move(name), std::move(value));
  return attributes;
}

void ReplaceReads(Graph& graph, ValueId from, ValueId to) {
  for (Node& node : graph.nodes) std::replace(node.inputs.begin(), node.inputs.end(), from, to);
  std::replace(graph.outputs.begin(), graph.outputs.end(), from, to);
}

void RemoveNodes(Graph& graph, const std::vector<bool>& removed) {
  std::vector<Node> kept;
  kept.reserve(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (n >= removed.size() || !removed[n]) kept.push_back(std::move(graph.nodes[n]));
  }
  graph.nodes = std::move(kept);
}

void SortNodes(Graph& graph) {
  const Links links(graph);
  const int count = static_cast<int>(graph.nodes.size());
  std::vector<int> waits(count, 0);
  for (int n = 0; n < count; ++n) {
    for (ValueId id : graph.nodes[n].inputs) waits[n] += links.producer(id) >= 0 ? 1 : 0;
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int n = 0; n < count; ++n) {
    if (waits[n] == 0) ready.push(n);
  }
  std::vector<Node> sorted;
  sorted.reserve(count);
  while (!ready.empty()) {
    const int n = ready.top();
    ready.pop();
    for (ValueId id : graph.nodes[n].outputs) {
      if (id == kNoValue) continue;
      for (int reader : links.readers(id)) {
        if (--waits[reader] == 0) ready.push(reader);
      }
    }
    sorted.push_back(std::move(graph.nodes[n]));
  }
  graph.nodes = std::move(sorted);
}

ValueId OtherInput(const Node& node, ValueId id) {
  if (node.inputs.size() != 2 || node.inputs[0] == node.inputs[1]) return kNoValue;
  if (node.inputs[0] == id) return node.inputs[1];
  return node.inputs[1] == id ? node.inputs[0] : kNoValue;
}

std::optional<ScalarAndOther> SplitScalar(const Graph& graph, const Node& node) {
  if (node.inputs.size() != 2) return std::nullopt;
  for (int i = 0; i < 2; ++i) {
    const auto scalar = ScalarInput(graph, node, i);
    if (scalar) return ScalarAndOther{*scalar, node.inputs[1 - i]};
  }
  return std::nullopt;
}

bool Near(double a, double b) { return std::abs(a - b) <= 1e-6 * std::max(1.0, std::abs(b)); }

}  // namespace chairlift
