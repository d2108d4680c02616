#include "graph/cells/axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "graph/batch_axis/propagate.h"
#include "graph/cells/layer_rules.h"
#include "graph/cells/lower_recurrent.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

// Limit of symbols tried as the batch or as a length, and of sequences: more than real models have,
// few enough to refuse a hostile one quickly.
constexpr size_t kMaxTried = 16;
constexpr size_t kMaxSequences = 64;

using batch_axis::State;

// The only axis whose dimension is the symbol; −1 if there is none or several.
int AxisOf(const SymbolicShape& shape, const std::string& symbol) {
  int found = -1;
  for (int i = 0; shape.has_rank() && i < shape.rank(); ++i) {
    if (!shape[i].is_symbol() || shape[i].symbol() != symbol) continue;
    if (found >= 0) return -1;
    found = i;
  }
  return found;
}

// Why lanes are not independent with this symbol as the batch; empty if they are.
std::string TryBatch(const Graph& graph, const std::string& symbol, std::vector<State>& states) {
  std::vector<State> inputs;
  for (ValueId id : graph.inputs) {
    const Value& input = graph.values[id];
    const int axis = AxisOf(input.shape, symbol);
    if (axis < 0) {
      return fmt::format("'{}' is not one dimension of every input: '{}' has the shape {}", symbol,
                         input.name, input.shape.ToString());
    }
    inputs.push_back(State::Rows(axis));
  }
  states = batch_axis::Propagate(graph, LaneRules(), symbol, inputs);
  for (ValueId id : graph.outputs) {
    const State& state = states[id];
    const std::string& name = graph.values[id].name;
    if (state.kind == State::Kind::kMixed) return state.why;
    if (!state.rows()) return fmt::format("output '{}' is the same for all rows", name);
    if (!state.outer.is_one() || !state.inner.is_one()) {
      return fmt::format("output '{}' has several entries along dimension {} for each row", name,
                         state.axis);
    }
  }
  return {};
}

StatusOr<std::vector<State>> FindBatch(const Graph& graph, std::string& symbol) {
  // Dimension 0 of all inputs first, then dimension 1, and so on.
  std::vector<std::string> candidates;
  int most = 0;
  for (ValueId id : graph.inputs) {
    const SymbolicShape& shape = graph.values[id].shape;
    if (!shape.has_rank()) {
      return Unimplemented("the rank of input '{}' is not known", graph.values[id].name);
    }
    most = std::max(most, shape.rank());
  }
  for (int axis = 0; axis < most; ++axis) {
    for (ValueId id : graph.inputs) {
      const SymbolicShape& shape = graph.values[id].shape;
      if (axis >= shape.rank() || !shape[axis].is_symbol()) continue;
      const std::string& name = shape[axis].symbol();
      if (candidates.size() < kMaxTried &&
          std::find(candidates.begin(), candidates.end(), name) == candidates.end()) {
        candidates.push_back(name);
      }
    }
  }
  if (candidates.empty()) return Unimplemented("all dimensions of the inputs are fixed");
  std::string why;
  for (const std::string& candidate : candidates) {
    std::vector<State> states;
    std::string problem = TryBatch(graph, candidate, states);
    if (problem.empty()) {
      symbol = candidate;
      return states;
    }
    why += fmt::format("{}dimension '{}' is no batch: {}", why.empty() ? "" : "; ", candidate,
                       problem);
  }
  return Unimplemented("{}", why);
}

std::vector<bool> FindReal(const Graph& graph) {
  std::vector<bool> real(graph.values.size(), false);
  for (ValueId id : graph.inputs) real[id] = true;
  for (const Node& node : graph.nodes) {
    if (node.def->gives_sizes) continue;
    const bool any = std::any_of(node.inputs.begin(), node.inputs.end(),
                                 [&](ValueId id) { return id != kNoValue && real[id]; });
    for (ValueId id : node.outputs) {
      if (id != kNoValue) real[id] = any;
    }
  }
  return real;
}

class SequenceWalk {
 public:
  SequenceWalk(const Graph& graph, const ModelAxes& axes, const std::string& symbol, ValueId seed,
               int seed_axis)
      : graph_(graph), axes_(axes), seed_(seed), seed_axis_(seed_axis) {
    result_.symbol = symbol;
  }

  SequenceAxes Run() && {
    for (const Value& value : graph_.values) {
      result_.states.push_back(batch_axis::Known(value, result_.symbol));
    }
    result_.mixes.assign(graph_.nodes.size(), false);
    for (ValueId id : graph_.inputs) Begin(id);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) Visit(n);
    return std::move(result_);
  }

 private:
  State& state(ValueId id) { return result_.states[id]; }

  // Whether a sequence starts at this value.
  bool Begin(ValueId id) {
    const State& lanes = axes_.batch[id];
    if (!lanes.rows() || !lanes.outer.is_one() || !lanes.inner.is_one()) return false;
    const int axis = id == seed_ ? seed_axis_ : AxisOf(graph_.values[id].shape, result_.symbol);
    if (axis < 0 || axis == lanes.axis) return false;
    const State before = state(id);
    state(id) = State::Rows(axis);
    const auto form = FormOf(graph_, axes_, &result_, id);
    if (!form || !AllKnown(RowOf(*form))) {
      state(id) = before;
      return false;
    }
    if (result_.source == kNoValue) result_.source = id;
    return true;
  }

  // Whether the size of a token's value is the same for all requests.
  bool RowsAreFixed(ValueId id) const {
    if (id == kNoValue || !axes_.real[id] || !axes_.batch[id].rows()) return true;
    const auto form = FormOf(graph_, axes_, &result_, id);
    return form && AllKnown(RowOf(*form));
  }

  // Whether it is an output of the model in which each token has several entries along the axis of
  // time: tokens are put together along an axis of their own alone.
  bool HidesTokens(ValueId id) const {
    const State& tokens = result_.states[id];
    return tokens.rows() && !WholeAxis(tokens, tokens.axis) &&
           std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end();
  }

  bool KeepsTokensApart(size_t n) {
    const Node& node = graph_.nodes[n];
    bool real = false;
    for (ValueId id : node.inputs) {
      if (id == kNoValue) continue;
      if (state(id).kind == State::Kind::kMixed) return false;
      real |= axes_.real[id];
    }
    if (Is(node, "Scan") && !axes_.no_layer[n].empty()) return false;
    if (!batch_axis::VisitNode(graph_, node, TimeRules(), result_.symbol, result_.states).ok()) {
      return false;
    }
    if (!real || node.def->gives_sizes) return true;
    int rows = 0;
    int others = 0;
    for (ValueId id : node.outputs) {
      if (id != kNoValue) ++(state(id).rows() ? rows : others);
    }
    if (rows == 0) return true;
    if (std::any_of(node.outputs.begin(), node.outputs.end(),
                    [&](ValueId id) { return id != kNoValue && HidesTokens(id); })) {
      return false;
    }
    if (others > 0 && !axes_.no_layer[n].empty()) return false;
    return std::all_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId id) { return RowsAreFixed(id); }) &&
           std::all_of(node.outputs.begin(), node.outputs.end(),
                       [&](ValueId id) { return RowsAreFixed(id); });
  }

  void Visit(size_t n) {
    const Node& node = graph_.nodes[n];
    if (!KeepsTokensApart(n)) {
      result_.mixes[n] = true;
      for (ValueId id : node.outputs) {
        if (id == kNoValue) continue;
        // Computed once per lane: the same for all of its tokens.
        state(id) = State::Shared();
        if (!axes_.batch[id].rows()) state(id).kind = State::Kind::kMixed;
      }
    }
    for (ValueId id : node.outputs) {
      if (id == kNoValue || !axes_.real[id] || state(id).rows()) continue;
      if (Begin(id)) result_.mixes[n] = true;
    }
  }

  const Graph& graph_;
  const ModelAxes& axes_;
  const ValueId seed_;
  const int seed_axis_;
  SequenceAxes result_;
};

// The value that the layer's projection reads.
ValueId ProjectedFrom(const Graph& graph, const Links& links, const Node& layer, ValueId xw) {
  if (!IsRecurrentLayer(layer)) return xw;
  const Node* node = &graph.nodes[links.producer(xw)];
  if (Is(*node, "Add")) node = &graph.nodes[links.producer(node->inputs[0])];
  return node->inputs[0];
}

void FindSequences(const Graph& graph, ModelAxes& axes) {
  const Links links(graph);
  std::vector<SequenceAxes> tried;
  const auto runs_along = [](const SequenceAxes& s, size_t n, ValueId xw, int axis) {
    return !s.mixes[n] && WholeAxis(s.states[xw], axis);
  };
  for (ValueId id : graph.inputs) {
    for (const Dim& dim : graph.values[id].shape.dims()) {
      if (!dim.is_symbol() || dim.symbol() == axes.batch_symbol || tried.size() == kMaxTried) {
        continue;
      }
      if (std::any_of(tried.begin(), tried.end(),
                      [&](const SequenceAxes& s) { return s.symbol == dim.symbol(); })) {
        continue;
      }
      tried.push_back(SequenceWalk(graph, axes, dim.symbol(), kNoValue, -1).Run());
    }
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (!axes.no_layer[n].empty()) continue;
    const LayerInput input = *InputOfLayer(graph, node);
    const ValueId xw = node.inputs[input.input];
    const int axis = input.time_axis;
    if (!axes.real[xw]) continue;
    const auto find = [&](std::vector<SequenceAxes>& in) {
      return std::find_if(in.begin(), in.end(),
                          [&](const SequenceAxes& s) { return runs_along(s, n, xw, axis); });
    };
    auto used = find(axes.sequences);
    if (used == axes.sequences.end()) {
      if (auto known = find(tried); known != tried.end()) {
        axes.sequences.push_back(std::move(*known));
        tried.erase(known);
      } else {
        if (axes.sequences.size() == kMaxSequences) continue;
        const ValueId x = ProjectedFrom(graph, links, node, xw);
        const Dim& dim = graph.values[x].shape[axis];
        SequenceAxes found;
        if (dim.is_symbol()) {
          found = SequenceWalk(graph, axes, dim.symbol(), kNoValue, -1).Run();
        }
        if (!dim.is_symbol() || !runs_along(found, n, xw, axis)) {
          found = SequenceWalk(graph, axes, fmt::format("(steps of {})", node.name), x, axis).Run();
        }
        if (!runs_along(found, n, xw, axis)) continue;
        axes.sequences.push_back(std::move(found));
      }
      used = axes.sequences.end() - 1;
    }
    axes.layer_sequence[n] = static_cast<int>(used - axes.sequences.begin());
  }
}

// Why the node cannot be cut into steps; empty if it can. It must be a Scan whose states have
// constant sizes, and whose body captures only constants and values of lanes.
std::string WhyNoLayer(const Graph& graph, const ModelAxes& axes, const Node& node) {
  if (IsRecurrentLayer(node)) return {};
  if (Is(node, "Loop")) {
    return "a Loop must run over all entries of one axis, without a condition of its own";
  }
  const auto scan = PartsOfScan(graph, node);
  if (!scan) return "its axes are not known";
  if (scan->states == 0) return "it has no state";
  if (!scan->one_direction) {
    return "some of scan_input_directions and scan_output_directions are forward, others reverse";
  }
  const auto fixed_rows = [&](ValueId id) {
    const State& state = axes.batch[id];
    if (!WholeAxis(state, state.axis)) return false;
    const auto form = FormOf(graph, axes, nullptr, id);
    return form && AllKnown(RowOf(*form));
  };
  const std::vector<State> inside =
      BodyStates(*scan, *scan->body, node, axes.batch_symbol, axes.batch);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId id = node.inputs[i];
    if (id == kNoValue) return fmt::format("its input {} is absent", i);
    const std::string& name = graph.values[id].name;
    const int state = static_cast<int>(i);
    if (state < scan->states) {
      if (!fixed_rows(id)) return fmt::format("the size of its state '{}' is not known", name);
    } else if (state < scan->states + scan->sequences) {
      if (!axes.real[id] || !WholeAxis(axes.batch[id], axes.batch[id].axis)) {
        return fmt::format("its sequence '{}' does not bring the rows of inputs", name);
      }
    } else if (!graph.values[id].is_constant() && !(axes.real[id] && fixed_rows(id))) {
      return fmt::format("its body reads '{}', which is neither constant nor of each row", name);
    }
  }
  for (ValueId id : scan->body->outputs) {
    if (WholeAxis(inside[id], inside[id].axis)) continue;
    return fmt::format("its body mixes the rows of '{}'", scan->body->values[id].name);
  }
  return {};
}

// Checks that all recurrent layers, or at least one Scan, can be cut into steps.
Status CheckLayers(const Graph& graph, const ModelAxes& axes) {
  bool any = false;
  std::string why;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    any |= axes.layer_sequence[n] >= 0;
    const bool loops = Is(node, "Scan") || Is(node, "Loop");
    if (axes.layer_sequence[n] >= 0 || !(loops || IsRecurrentLayer(node))) continue;
    const std::string& no_layer = axes.no_layer[n];
    const std::string reason = no_layer.empty()
                                   ? "its steps cannot be followed"
                                   : fmt::format("it cannot be cut into steps: {}", no_layer);
    if (!loops) return Unimplemented("{}: {}", node.Describe(), reason);
    if (why.empty()) why = fmt::format("{}: {}", node.Describe(), reason);
  }
  return any ? absl::OkStatus() : Unimplemented("{}", why);
}

Piece Number(Dim dim) { return {Piece::Kind::kNumber, std::move(dim)}; }

// Appends a factor, which must be a number; ones are omitted.
bool Append(std::vector<Piece>& axis, const std::optional<analysis::Line>& factor) {
  if (!factor || !factor->is_number() || factor->number < 1) return false;
  if (!factor->is_one()) axis.push_back(Number(Dim(factor->number)));
  return true;
}

}  // namespace

std::optional<Form> FormOf(const Graph& graph, const ModelAxes& axes, const SequenceAxes* sequence,
                           ValueId id) {
  const SymbolicShape& shape = graph.values[id].shape;
  const State& lanes = axes.batch[id];
  const State* tokens = sequence != nullptr ? &sequence->states[id] : nullptr;
  if (tokens != nullptr && !tokens->rows()) tokens = nullptr;
  if (!shape.has_rank() || !lanes.rows()) return std::nullopt;
  const Piece lane{Piece::Kind::kLanes, {}};
  const Piece token{Piece::Kind::kTokens, {}};
  Form form;
  for (int i = 0; i < shape.rank(); ++i) {
    std::vector<Piece> axis;
    const bool of_lanes = lanes.axis == i;
    const bool of_tokens = tokens != nullptr && tokens->axis == i;
    if (of_lanes && of_tokens) {
      const auto inside = [](const State& whole, const std::optional<analysis::Line>& block,
                             const std::string& symbol) -> std::optional<analysis::Line> {
        const auto steps =
            block ? analysis::Line::Product(*block, analysis::Line::Of(symbol)) : std::nullopt;
        return steps ? analysis::Line::Quotient(whole.inner, *steps) : std::nullopt;
      };
      if (const auto middle = inside(lanes, tokens->inner, sequence->symbol)) {
        if (!Append(axis, lanes.outer)) return std::nullopt;
        axis.push_back(lane);
        if (!Append(axis, middle)) return std::nullopt;
        axis.push_back(token);
        if (!Append(axis, tokens->inner)) return std::nullopt;
      } else {
        if (!Append(axis, tokens->outer)) return std::nullopt;
        axis.push_back(token);
        if (!Append(axis, inside(*tokens, lanes.inner, axes.batch_symbol))) return std::nullopt;
        axis.push_back(lane);
        if (!Append(axis, lanes.inner)) return std::nullopt;
      }
    } else if (of_lanes || of_tokens) {
      const State& state = of_lanes ? lanes : *tokens;
      if (!Append(axis, state.outer)) return std::nullopt;
      axis.push_back(of_lanes ? lane : token);
      if (!Append(axis, state.inner)) return std::nullopt;
    } else {
      axis.push_back(Number(shape[i]));
    }
    form.push_back(std::move(axis));
  }
  return form;
}

StatusOr<ModelAxes> FindAxes(const Graph& graph) {
  ModelAxes axes;
  if (graph.inputs.empty()) return Unimplemented("the model has no inputs");
  CHAIRLIFT_ASSIGN_OR_RETURN(axes.batch, FindBatch(graph, axes.batch_symbol));
  axes.real = FindReal(graph);
  axes.layer_sequence.assign(graph.nodes.size(), -1);
  for (const Node& node : graph.nodes) axes.no_layer.push_back(WhyNoLayer(graph, axes, node));
  FindSequences(graph, axes);
  CHAIRLIFT_RETURN_IF_ERROR(CheckLayers(graph, axes));
  return axes;
}

}  // namespace chairlift
