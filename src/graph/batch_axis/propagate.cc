#include "graph/batch_axis/propagate.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace chairlift::batch_axis {

const RuleTable& BatchRules() {
  static const RuleTable* const kRules = [] {
    auto* rules = new RuleTable;
    AddElementwiseRules(*rules);
    AddLinearRules(*rules);
    AddShapeRules(*rules);
    AddIndexRules(*rules);
    AddReductionRules(*rules);
    return rules;
  }();
  return *kRules;
}

namespace {

// A named size. Those that shape inference makes are products ("12*batch") and bounded sizes
// ("min(batch,512)"), of which nothing is known.
std::optional<Extent> SizeOf(const std::string& symbol, const std::string& batch_symbol) {
  if (symbol == batch_symbol) return Extent::Batch();
  if (symbol.find(batch_symbol) == std::string::npos) return Extent::Symbol(symbol);
  if (symbol.find("min(") != std::string::npos) return std::nullopt;
  if (symbol.find('*') == std::string::npos) return Extent::Symbol(symbol);
  std::optional<Extent> product = Extent();
  size_t begin = 0;
  while (product && begin <= symbol.size()) {
    const size_t end = std::min(symbol.find('*', begin), symbol.size());
    const std::string part = symbol.substr(begin, end - begin);
    const bool number = part.find_first_not_of("0123456789") == std::string::npos;
    if (part.empty() || (number && part.size() > 9)) return std::nullopt;
    product = Extent::Product(*product, number                 ? Extent::Number(std::stoll(part))
                                        : part == batch_symbol ? Extent::Batch()
                                                               : Extent::Symbol(part));
    begin = end + 1;
  }
  return product;
}

}  // namespace

// What constants and shape inference know of integers.
State Known(const Value& value, const std::string& batch_symbol) {
  State state = State::Shared();
  if (value.is_constant()) {
    if (value.constant.shape().rank() > 1) return state;
    std::vector<Extent> elements;
    if (value.dtype == DType::kInt64) {
      for (int64_t v : value.constant.values<int64_t>()) elements.push_back(Extent::Number(v));
    } else if (value.dtype == DType::kInt32) {
      for (int32_t v : value.constant.values<int32_t>()) elements.push_back(Extent::Number(v));
    } else {
      return state;
    }
    state.elements = std::move(elements);
    return state;
  }
  if (!value.elements) return state;
  std::vector<Extent> elements;
  for (const Dim& dim : *value.elements) {
    if (dim.known()) {
      elements.push_back(Extent::Number(dim.value()));
    } else if (dim.is_symbol()) {
      const std::optional<Extent> size = SizeOf(dim.symbol(), batch_symbol);
      if (!size) return state;
      elements.push_back(*size);
    } else {
      return state;
    }
  }
  return State::Of(std::move(elements));
}

namespace {

// Of nodes whose inputs are all shared: what can be told of the outputs' elements.
State FoldShared(const Graph& graph, const Node& node, ValueId output, const RuleTable& rules,
                 const std::string& symbol, const std::vector<State>& states) {
  State known = Known(graph.values[output], symbol);
  static constexpr std::string_view kFolding[] = {
      "Add", "Sub", "Mul", "Div", "Equal", "Where", "Concat", "Cast", "ConstantOfShape"};
  const bool folding =
      node.def->domain.empty() &&
      std::find(std::begin(kFolding), std::end(kFolding), node.def->name) != std::end(kFolding);
  if (known.elements || !folding) return known;
  for (ValueId id : node.inputs) {
    if (id == kNoValue || !states[id].elements) return known;
  }
  Context context(graph, node, symbol, states);
  return rules.at(node.def->name)(context).ok() ? context.outputs()[0] : known;
}

bool HasSubgraph(const Node& node) { return !Subgraphs(node).empty(); }

}  // namespace

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
      if (id != kNoValue) states[id] = FoldShared(graph, node, id, rules, symbol, states);
    }
    return absl::OkStatus();
  }
  const std::string& domain = node.def->domain;
  const auto rule = rules.find(domain.empty() ? node.def->name : domain + "::" + node.def->name);
  Status status;
  if (rule == rules.end()) {
    status = HasSubgraph(node) ? Unimplemented("control flow is not followed")
                               : Unimplemented("it is not known to keep rows apart");
  } else {
    Context context(graph, node, symbol, states);
    status = rule->second(context);
    if (status.ok()) {
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        if (node.outputs[i] != kNoValue) states[node.outputs[i]] = context.outputs()[i];
      }
      return absl::OkStatus();
    }
  }
  // Arithmetic on sizes that no rule follows, but shape inference does.
  if (any_rows) return status;
  std::vector<State> known(node.outputs.size());
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNoValue) continue;
    known[i] = Known(graph.values[node.outputs[i]], symbol);
    if (!known[i].elements) return status;
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] != kNoValue) states[node.outputs[i]] = std::move(known[i]);
  }
  return absl::OkStatus();
}

std::vector<State> Propagate(const Graph& graph, const RuleTable& rules, const std::string& symbol,
                             std::span<const State> inputs) {
  std::vector<State> states;
  states.reserve(graph.values.size());
  for (const Value& value : graph.values) states.push_back(Known(value, symbol));
  for (size_t i = 0; i < graph.inputs.size(); ++i) states[graph.inputs[i]] = inputs[i];
  for (const Node& node : graph.nodes) {
    State mixed;
    mixed.kind = State::Kind::kMixed;
    const auto input = std::find_if(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
      return id != kNoValue && states[id].kind == State::Kind::kMixed;
    });
    if (input != node.inputs.end()) {
      mixed.why = states[*input].why;
    } else {
      const Status status = VisitNode(graph, node, rules, symbol, states);
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
