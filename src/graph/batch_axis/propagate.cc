#include "graph/batch_axis/propagate.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "graph/batch_axis/places.h"
#include "graph/passes/rewrite.h"

namespace chairlift::batch_axis {

const RuleTable& BatchRules() {
  static const RuleTable* const kRules = [] {
    auto* rules = new RuleTable;
    AddShapeRules(*rules);
    AddImageRules(*rules);
    return rules;
  }();
  return *kRules;
}

// What constants and shape inference tell about integers.
State Known(const Value& value, const std::string& batch_symbol) {
  State state = State::Shared();
  if (value.is_constant()) {
    if (value.constant.shape().rank() > 1) return state;
    Dims elements;
    if (value.dtype == DType::kInt64) {
      for (int64_t v : value.constant.values<int64_t>()) elements.push_back(Line::Number(v));
    } else if (value.dtype == DType::kInt32) {
      for (int32_t v : value.constant.values<int32_t>()) elements.push_back(Line::Number(v));
    } else {
      return state;
    }
    state.elements = std::move(elements);
    return state;
  }
  if (!value.elements) return state;
  Dims elements;
  for (const Dim& dim : *value.elements) {
    if (dim.known()) {
      elements.push_back(Line::Number(dim.value()));
    } else if (dim.is_symbol()) {
      const std::optional<Line> size = Line::OfSymbol(dim.symbol(), batch_symbol);
      if (!size) return state;
      elements.push_back(*size);
    } else {
      return state;
    }
  }
  return State::Of(std::move(elements));
}

namespace {

Status ComputesWithBatch() { return Unimplemented("it computes with the batch size"); }

// The elements of the node's output, as they follow from those of its inputs.
StatusOr<State> ComputedSizes(const Graph& graph, const Node& node,
                              const std::vector<State>& states) {
  constexpr int64_t kMostElements = 64;
  analysis::PatternReader reader(graph);
  for (const ValueId id : node.inputs) {
    if (id == kNoValue) continue;
    const Value& value = graph.values[id];
    if (!value.shape.has_rank() || value.shape.rank() > 1) return ComputesWithBatch();
    if (value.is_constant()) continue;
    auto elements = states[id].elements;
    if (!elements && Is(node, "Concat") && states[id].shared() && value.shape.rank() == 1 &&
        value.shape[0].known() && value.shape[0].value() <= kMostElements) {
      // They may be any integers, but depend neither on a row nor on the batch size.
      elements.emplace();
      for (int64_t e = 0; e < value.shape[0].value(); ++e) {
        elements->push_back(Line::Of(fmt::format("?{}[{}]", id, e)));
      }
    }
    if (!elements || elements->size() > kMostElements ||
        (value.shape.rank() == 0 && elements->size() != 1)) {
      return ComputesWithBatch();
    }
    reader.Set(id, analysis::Pattern::OfElements(value.dtype, value.shape.rank(), *elements));
  }
  CHAIRLIFT_RETURN_IF_ERROR(reader.Visit(node));
  const DType dtype = graph.values[node.outputs[0]].dtype;
  const auto elements = reader.of(node.outputs[0]).Elements();
  if (!elements || (!analysis::IsInteger(dtype) && dtype != DType::kBool)) {
    return ComputesWithBatch();
  }
  return State::Of(*elements);
}

// For nodes whose inputs are all shared: what is known about the elements of the outputs.
State FoldShared(const Graph& graph, const Node& node, ValueId output, const std::string& symbol,
                 const std::vector<State>& states) {
  State known = Known(graph.values[output], symbol);
  if (known.elements) return known;
  for (ValueId id : node.inputs) {
    if (id == kNoValue || !states[id].elements) return known;
  }
  return ComputedSizes(graph, node, states).value_or(known);
}

// Applies a rule of the table.
Status Apply(Rule rule, const Graph& graph, const Node& node, const std::string& symbol,
             std::vector<State>& states) {
  Context context(graph, node, symbol, states);
  CHAIRLIFT_RETURN_IF_ERROR(rule(context));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] != kNoValue) states[node.outputs[i]] = context.outputs()[i];
  }
  return absl::OkStatus();
}

// Arithmetic on sizes that no rule covers, but shape inference does.
bool FollowKnown(const Graph& graph, const Node& node, const std::string& symbol,
                 std::vector<State>& states) {
  std::vector<State> known(node.outputs.size());
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNoValue) continue;
    known[i] = Known(graph.values[node.outputs[i]], symbol);
    if (!known[i].elements) return false;
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] != kNoValue) states[node.outputs[i]] = std::move(known[i]);
  }
  return true;
}

Status FollowRows(const Graph& graph, const Node& node, const RuleTable& rules,
                  const std::string& symbol, std::vector<State>& states) {
  const std::string& domain = node.def->domain;
  const auto rule = rules.find(domain.empty() ? node.def->name : domain + "::" + node.def->name);
  if (rule != rules.end()) return Apply(rule->second, graph, node, symbol, states);
  if (node.def->axes != nullptr) return Apply(FollowAxes, graph, node, symbol, states);
  return Subgraphs(node).empty() ? Unimplemented("it is not known to keep rows apart")
                                 : Unimplemented("control flow is not followed");
}

}  // namespace

Status FollowSizes(const Graph& graph, const Node& node, const std::string& symbol,
                   std::vector<State>& states) {
  StatusOr<State> sizes = ComputedSizes(graph, node, states);
  if (!sizes.ok())
    return FollowKnown(graph, node, symbol, states) ? absl::OkStatus() : sizes.status();
  states[node.outputs[0]] = *std::move(sizes);
  return absl::OkStatus();
}

Status VisitNode(const Graph& graph, const Node& node, const RuleTable& rules,
                 const std::string& symbol, std::vector<State>& states) {
  bool all_shared = true;
  bool any_rows = false;
  for (ValueId id : node.inputs) {
    if (id == kNoValue) continue;
    all_shared &= states[id].shared();
    any_rows |= states[id].rows();
  }
  if (!node.def->deterministic) return Unimplemented("it is random");
  if (all_shared) {
    for (ValueId id : node.outputs) {
      if (id != kNoValue) states[id] = FoldShared(graph, node, id, symbol, states);
    }
    return absl::OkStatus();
  }
  if (!any_rows && FollowSizes(graph, node, symbol, states).ok()) {
    return absl::OkStatus();
  }
  Status status = FollowRows(graph, node, rules, symbol, states);
  if (status.ok() || any_rows) return status;
  return FollowKnown(graph, node, symbol, states) ? absl::OkStatus() : status;
}

std::vector<State> Propagate(const Graph& graph, const RuleTable& rules, const std::string& symbol,
                             std::span<const State> inputs) {
  std::vector<State> states;
  states.reserve(graph.values.size());
  for (const Value& value : graph.values) states.push_back(Known(value, symbol));
  for (size_t i = 0; i < graph.inputs.size(); ++i) states[graph.inputs[i]] = inputs[i];
  Places places(graph, symbol, states);
  for (const Node& node : graph.nodes) {
    State mixed;
    mixed.kind = State::Kind::kMixed;
    const auto find = [&](const auto& is) {
      return std::find_if(node.inputs.begin(), node.inputs.end(),
                          [&](ValueId id) { return id != kNoValue && is(states[id]); });
    };
    const auto input = find([](const State& s) { return s.kind == State::Kind::kMixed; });
    if (input != node.inputs.end()) {
      mixed.why = states[*input].why;
    } else {
      places.Read(node);
      const bool reads_places =
          find([](const State& s) { return s.places(); }) != node.inputs.end();
      Status status =
          reads_places ? places.Follow(node) : VisitNode(graph, node, rules, symbol, states);
      if (!status.ok() && !reads_places && places.Knows(node)) status = places.Follow(node);
      if (status.ok()) continue;
      mixed.why = fmt::format("{}: {}", node.Describe(), Message(status));
    }
    for (ValueId id : node.outputs) {
      if (id != kNoValue) states[id] = mixed;
    }
  }
  return states;
}

}  // namespace chairlift::batch_axis
