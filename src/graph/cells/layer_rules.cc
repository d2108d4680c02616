#include "graph/cells/layer_rules.h"

#include <algorithm>
#include <utility>

#include "graph/batch_axis/propagate.h"
#include "graph/cells/lower_recurrent.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

using batch_axis::Context;
using batch_axis::RuleTable;
using batch_axis::State;

// The axes of XW.
int BatchAxis(const Attributes& layer) { return layer.Int("layout", 0) != 0 ? 0 : 1; }
int TimeAxis(const Attributes& layer) { return 1 - BatchAxis(layer); }

Status LayerOverLanes(Context& c) {
  const int axis = BatchAxis(c.attributes());
  if (!WholeAxis(c.in(kLayerXw), axis)) return batch_axis::MixesRows();
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (!c.has(i)) continue;
    if (i < kLayerLengths) {
      if (!c.in(i).shared()) return Unimplemented("its weights depend on the rows");
    } else if (!WholeAxis(c.in(i), 0)) {
      return Unimplemented("its {} a fixed number of rows",
                           i == kLayerLengths ? "sequence_lens has" : "initial states have");
    }
  }
  c.SetAll(State::Rows(0));
  c.Set(0, State::Rows(axis));
  return absl::OkStatus();
}

Status LayerOverTime(Context& c) {
  const int axis = TimeAxis(c.attributes());
  if (!WholeAxis(c.in(kLayerXw), axis)) return batch_axis::MixesRows();
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (!c.in(i).shared()) return batch_axis::MixesRows();
  }
  c.SetAll(State::Shared());
  c.Set(0, State::Rows(axis));
  return absl::OkStatus();
}

// The states that a body starts a step with have the same layout as those at its end.
Status ScanOverLanes(Context& c) {
  const auto scan = PartsOfScan(c.graph(), c.node());
  if (!scan) return Unimplemented("its axes are not known");
  std::vector<State> inputs;
  for (int i = 0; i < c.num_inputs(); ++i) inputs.push_back(c.in(i));
  for (int i = 0; i < scan->states; ++i) {
    if (!inputs[i].rows()) return Unimplemented("its initial states have a fixed number of rows");
  }
  for (int i = 0; i < scan->sequences; ++i) {
    const State& x = inputs[scan->states + i];
    if (x.sizes() || (x.rows() && x.axis == scan->input_axes[i])) return batch_axis::MixesRows();
  }
  const Graph& body = *scan->body;
  const std::vector<State> inside = BodyStates(*scan, body, c.node(), c.symbol(), c.states());
  for (int i = 0; i < c.num_outputs(); ++i) {
    const State& out = inside[body.outputs[i]];
    if (out.kind == State::Kind::kMixed) return Unimplemented("in its body, {}", out.why);
    if (i < scan->states) {
      if (!out.rows() || out.axis != inputs[i].axis || !out.SameRows(inputs[i])) {
        return Unimplemented("its state {} does not keep its rows in place", i);
      }
      c.Set(i, inputs[i]);
    } else if (out.rows()) {
      const int axis = scan->output_axes[i - scan->states];
      c.Set(i, out.At(out.axis + (axis <= out.axis ? 1 : 0)));
    } else if (out.sizes()) {
      return Unimplemented("it computes with the batch size");
    }
  }
  return absl::OkStatus();
}

Status ScanOverTime(Context& c) {
  const auto scan = PartsOfScan(c.graph(), c.node());
  if (!scan || scan->states == 0 || !scan->one_direction) return batch_axis::MixesRows();
  for (int i = 0; i < c.num_inputs(); ++i) {
    const int sequence = i - scan->states;
    if (sequence >= 0 && sequence < scan->sequences) {
      if (!WholeAxis(c.in(i), scan->input_axes[sequence])) return batch_axis::MixesRows();
    } else if (!c.in(i).shared()) {
      return batch_axis::MixesRows();
    }
  }
  for (int i = scan->states; i < c.num_outputs(); ++i) {
    c.Set(i, State::Rows(scan->output_axes[i - scan->states]));
  }
  return absl::OkStatus();
}

RuleTable WithLayers(batch_axis::Rule layer, batch_axis::Rule scan) {
  RuleTable rules = batch_axis::BatchRules();
  rules["chairlift::RecurrentLayer"] = layer;
  rules["Scan"] = scan;
  return rules;
}

// Entry i of an attribute that may be absent.
int64_t Entry(const std::vector<int64_t>& list, int i) {
  return i < static_cast<int>(list.size()) ? list[i] : 0;
}

}  // namespace

const RuleTable& LaneRules() {
  static const RuleTable* const kRules = new RuleTable(WithLayers(LayerOverLanes, ScanOverLanes));
  return *kRules;
}

const RuleTable& TimeRules() {
  static const RuleTable* const kRules = new RuleTable(WithLayers(LayerOverTime, ScanOverTime));
  return *kRules;
}

bool WholeAxis(const State& state, int axis) {
  return state.rows() && state.axis == axis && state.outer.is_one() && state.inner.is_one();
}

std::optional<ScanParts> PartsOfScan(const Graph& graph, const Node& node) {
  if (!Is(node, "Scan")) return std::nullopt;
  const auto bodies = Subgraphs(node);
  if (bodies.size() != 1 || bodies[0].second == nullptr) return std::nullopt;
  ScanParts scan;
  scan.body = bodies[0].second;
  scan.captures = scan.body->num_captures;
  const int64_t inputs = static_cast<int64_t>(node.inputs.size()) - scan.captures;
  const int64_t sequences = node.attributes.Int("num_scan_inputs", 0);
  if (sequences < 1 || sequences > inputs || scan.body->num_formal_inputs() != inputs) {
    return std::nullopt;
  }
  scan.sequences = static_cast<int>(sequences);
  scan.states = static_cast<int>(inputs - sequences);
  const int outputs = static_cast<int>(scan.body->outputs.size()) - scan.states;
  if (outputs < 0 || node.outputs.size() > scan.body->outputs.size()) return std::nullopt;
  const auto axis = [](int64_t listed, const SymbolicShape& shape, int added) -> int {
    if (!shape.has_rank()) return -1;
    const int rank = shape.rank() + added;
    if (listed < 0) listed += rank;
    return listed < 0 || listed >= rank ? -1 : static_cast<int>(listed);
  };
  const auto input_axes = node.attributes.Ints("scan_input_axes");
  const auto output_axes = node.attributes.Ints("scan_output_axes");
  const auto input_directions = node.attributes.Ints("scan_input_directions");
  const auto output_directions = node.attributes.Ints("scan_output_directions");
  const auto fits = [](const std::vector<int64_t>& list, int count) {
    return list.empty() || static_cast<int>(list.size()) == count;
  };
  if (!fits(input_axes, scan.sequences) || !fits(input_directions, scan.sequences) ||
      !fits(output_axes, outputs) || !fits(output_directions, outputs)) {
    return std::nullopt;
  }
  scan.reverse = Entry(input_directions, 0) != 0;
  scan.one_direction = true;
  for (int i = 0; i < scan.sequences; ++i) {
    const ValueId id = node.inputs[scan.states + i];
    if (id == kNoValue) return std::nullopt;
    scan.input_axes.push_back(axis(Entry(input_axes, i), graph.values[id].shape, 0));
    if (scan.input_axes.back() < 0) return std::nullopt;
    scan.one_direction &= (Entry(input_directions, i) != 0) == scan.reverse;
  }
  for (int i = 0; i < outputs; ++i) {
    const Value& element = scan.body->values[scan.body->outputs[scan.states + i]];
    scan.output_axes.push_back(axis(Entry(output_axes, i), element.shape, 1));
    if (scan.output_axes.back() < 0) return std::nullopt;
    scan.one_direction &= (Entry(output_directions, i) != 0) == scan.reverse;
  }
  return scan;
}

std::vector<State> BodyStates(const ScanParts& scan, const Graph& body, const Node& node,
                              const std::string& symbol, const std::vector<State>& states) {
  std::vector<State> inputs;
  for (size_t i = 0; i < body.inputs.size(); ++i) {
    State state = node.inputs[i] == kNoValue ? State::Shared() : states[node.inputs[i]];
    const int sequence = static_cast<int>(i) - scan.states;
    if (sequence >= 0 && sequence < scan.sequences) {
      if (state.rows()) {
        state.axis -= scan.input_axes[sequence] < state.axis ? 1 : 0;
      } else {
        state.elements.reset();
      }
    }
    inputs.push_back(std::move(state));
  }
  return batch_axis::Propagate(body, LaneRules(), symbol, inputs);
}

std::optional<LayerInput> InputOfLayer(const Graph& graph, const Node& node) {
  if (IsRecurrentLayer(node)) return LayerInput{kLayerXw, TimeAxis(node.attributes)};
  const auto scan = PartsOfScan(graph, node);
  if (!scan || scan->states == 0) return std::nullopt;
  return LayerInput{scan->states, scan->input_axes[0]};
}

}  // namespace chairlift
