// The walk over the graph; rule.h defines the terms of the proof.
#include "graph/batch_axis.h"

#include <algorithm>
#include <utility>

#include "graph/batch_axis/propagate.h"

namespace chairlift {
namespace {

using namespace batch_axis;  // NOLINT(google-build-using-namespace): this file's own module

// A name that no symbol in a file can have.
constexpr char kUnnamedBatch[] = "(batch)";

// The symbol that dimension 0 of all inputs shares, or an error that says why there is none.
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

std::vector<State> StatesOf(const Graph& graph, const std::string& symbol) {
  const std::vector<State> inputs(graph.inputs.size(), State::Rows(0));
  return Propagate(graph, BatchRules(), symbol, inputs);
}

// Why an output cannot be split into rows; empty if it can. axis −1: along any dimension.
std::string OutputProblem(const Value& output, const State& state, int axis) {
  if (state.kind == State::Kind::kMixed) return state.why;
  if (!state.rows()) {
    return fmt::format("output '{}' does not depend on the rows one by one", output.name);
  }
  if (axis >= 0 && state.axis != axis) {
    return fmt::format("output '{}' has the batch along dimension {}", output.name, state.axis);
  }
  if (!state.outer.is_one() || !state.inner.is_one()) {
    return fmt::format("output '{}' has several entries along dimension {} for each row",
                       output.name, state.axis);
  }
  return {};
}

}  // namespace

BatchAxisReport AnalyseBatchAxis(const Graph& graph) {
  const StatusOr<std::string> symbol = FindBatchSymbol(graph);
  if (!symbol.ok()) return {false, Message(symbol.status()), false};

  const std::vector<State> states = StatesOf(graph, *symbol);
  if (graph.outputs.empty()) return {false, "the model has no outputs", true};
  for (ValueId id : graph.outputs) {
    const std::string problem = OutputProblem(graph.values[id], states[id], 0);
    if (!problem.empty()) return {false, problem, true};
  }
  const std::string shared =
      *symbol == kUnnamedBatch
          ? fmt::format("dimension 0 of input '{}' varies", graph.values[graph.inputs[0]].name)
          : fmt::format("inputs share dimension 0 '{}'", *symbol);
  return {true, shared + "; every operator keeps rows apart", true};
}

StatusOr<std::vector<int>> AnalyseRows(const Graph& graph, const std::string& symbol,
                                       std::span<const int> axes) {
  if (axes.size() != graph.inputs.size() || axes.empty() || graph.outputs.empty()) {
    return Unimplemented("the model needs at least one input and one output");
  }
  std::vector<State> inputs;
  for (int axis : axes) inputs.push_back(State::Rows(axis));
  const std::vector<State> states = Propagate(graph, BatchRules(), symbol, inputs);
  std::vector<int> found;
  for (ValueId id : graph.outputs) {
    const std::string problem = OutputProblem(graph.values[id], states[id], -1);
    if (!problem.empty()) return Unimplemented("{}", problem);
    found.push_back(states[id].axis);
  }
  return found;
}

std::vector<bool> FindRows(const Graph& graph) {
  std::vector<bool> rows(graph.values.size(), false);
  const StatusOr<std::string> symbol = FindBatchSymbol(graph);
  if (!symbol.ok()) return rows;
  const std::vector<State> states = StatesOf(graph, *symbol);
  for (ValueId id : graph.outputs) {
    if (!OutputProblem(graph.values[id], states[id], 0).empty()) return rows;
  }
  for (size_t id = 0; id < rows.size(); ++id) {
    rows[id] = OutputProblem(graph.values[id], states[id], 0).empty();
  }
  return rows;
}

}  // namespace chairlift
