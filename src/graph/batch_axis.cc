// The walk over the graph; see rule.h for the proof's terms.
#include "graph/batch_axis.h"

#include <algorithm>
#include <utility>

#include "graph/batch_axis/rule.h"

namespace chairlift {
namespace {

using namespace batch_axis;  // NOLINT(google-build-using-namespace): this file's own module

// A name that no symbol in a file has.
constexpr char kUnnamedBatch[] = "(batch)";

const RuleTable& Rules() {
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

// The symbol that dimension 0 of all inputs shares, or why there is none.
StatusOr<std::string> FindBatchSymbol(const Graph& graph) {
  if (graph.num_formal_inputs() == 0) return Unimplemented("the model has no inputs");
  std::string symbol;
  const std::string& first_name = graph.values[graph.inputs[0]].name;
  for (int i = 0; i < graph.num_formal_inputs(); ++i) {
    const Value& input = graph.values[graph.inputs[i]];
    if (!input.shape.has_rank())
      return Unimplemented("the rank of input '{}' is not known", input.name);
    if (input.shape.rank() == 0) {
      return Unimplemented("input '{}' is a scalar and has no batch dimension", input.name);
    }
    const Dim& dim = input.shape[0];
    if (dim.known()) {
      return Unimplemented("dimension 0 of input '{}' is fixed to {}", input.name, dim.value());
    }
    const std::string here = dim.is_symbol() ? dim.symbol() : kUnnamedBatch;
    if (i == 0) symbol = here;
    if (here != symbol || (here == kUnnamedBatch && graph.num_formal_inputs() > 1)) {
      return Unimplemented("inputs '{}' and '{}' are not known to share dimension 0 ({} and {})",
                           first_name, input.name,
                           graph.values[graph.inputs[0]].shape[0].ToString(), dim.ToString());
    }
    for (int axis = 1; axis < input.shape.rank(); ++axis) {
      if (input.shape[axis].is_symbol() && input.shape[axis].symbol() == symbol) {
        return Unimplemented("dimension {} of input '{}' is '{}' too", axis, input.name, symbol);
      }
    }
  }
  return symbol;
}

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
      elements.push_back(dim.symbol() == batch_symbol ? Extent::Batch()
                                                      : Extent::Symbol(dim.symbol()));
    } else {
      return state;
    }
  }
  return State::Of(std::move(elements));
}

State Mixed(std::string why) {
  State state;
  state.kind = State::Kind::kMixed;
  state.why = std::move(why);
  return state;
}

// Of nodes whose inputs are all shared: what can be told of the outputs' elements.
State FoldShared(const Graph& graph, const Node& node, ValueId output, const std::string& symbol,
                 const std::vector<State>& states) {
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
  return Rules().at(node.def->name)(context).ok() ? context.outputs()[0] : known;
}

bool HasSubgraph(const Node& node) { return !Subgraphs(node).empty(); }

void Visit(const Graph& graph, const Node& node, const std::string& symbol,
           std::vector<State>& states) {
  const auto set_all = [&](const State& state) {
    for (ValueId id : node.outputs) {
      if (id != kNoValue) states[id] = state;
    }
  };
  bool all_shared = true;
  bool any_rows = false;
  for (ValueId id : node.inputs) {
    if (id == kNoValue) continue;
    if (states[id].kind == State::Kind::kMixed) return set_all(states[id]);
    all_shared &= states[id].shared();
    any_rows |= states[id].rows();
  }
  if (!node.def->deterministic) {
    return set_all(Mixed(fmt::format("{} is random", node.Describe())));
  }
  if (all_shared) {
    for (ValueId id : node.outputs) {
      if (id != kNoValue) states[id] = FoldShared(graph, node, id, symbol, states);
    }
    return;
  }
  const auto rule = Rules().find(std::string_view(node.def->name));
  Status status;
  if (HasSubgraph(node)) {
    status = Unimplemented("control flow is not followed");
  } else if (!node.def->domain.empty() || rule == Rules().end()) {
    status = Unimplemented("it is not known to keep rows apart");
  } else {
    Context context(graph, node, symbol, states);
    status = rule->second(context);
    if (status.ok()) {
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        if (node.outputs[i] != kNoValue) states[node.outputs[i]] = context.outputs()[i];
      }
      return;
    }
  }
  // Arithmetic on sizes that no rule follows, but shape inference does.
  if (!any_rows) {
    bool known = true;
    for (ValueId id : node.outputs) {
      if (id == kNoValue) continue;
      states[id] = Known(graph.values[id], symbol);
      known &= states[id].elements.has_value();
    }
    if (known) return;
  }
  set_all(Mixed(fmt::format("{}: {}", node.Describe(), Message(status))));
}

// Why an output cannot be split into rows; empty where it can.
std::string OutputProblem(const Value& output, const State& state) {
  if (state.kind == State::Kind::kMixed) return state.why;
  if (!state.rows()) {
    return fmt::format("output '{}' does not depend on the rows one by one", output.name);
  }
  if (state.axis != 0) {
    return fmt::format("output '{}' has the batch along dimension {}", output.name, state.axis);
  }
  if (!state.outer.is_one() || !state.inner.is_one()) {
    return fmt::format("output '{}' has several entries along dimension 0 for each row",
                       output.name);
  }
  return {};
}

}  // namespace

BatchAxisReport AnalyseBatchAxis(const Graph& graph) {
  const StatusOr<std::string> symbol = FindBatchSymbol(graph);
  if (!symbol.ok()) return {false, Message(symbol.status())};

  std::vector<State> states;
  states.reserve(graph.values.size());
  for (const Value& value : graph.values) states.push_back(Known(value, *symbol));
  for (ValueId id : graph.inputs) states[id] = State::Rows(0);
  for (const Node& node : graph.nodes) Visit(graph, node, *symbol, states);

  if (graph.outputs.empty()) return {false, "the model has no outputs"};
  for (ValueId id : graph.outputs) {
    const std::string problem = OutputProblem(graph.values[id], states[id]);
    if (!problem.empty()) return {false, problem};
  }
  const std::string shared =
      *symbol == kUnnamedBatch
          ? fmt::format("dimension 0 of input '{}' varies", graph.values[graph.inputs[0]].name)
          : fmt::format("inputs share dimension 0 '{}'", *symbol);
  return {true, shared + "; every operator keeps rows apart"};
}

}  // namespace chairlift
