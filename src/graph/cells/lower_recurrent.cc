#include "graph/cells/lower_recurrent.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>

#include "graph/cells/graph_writer.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

Status InferLayer(InferContext& c) {
  const SymbolicShape& xw = c.shape(kLayerXw);
  if (!xw.has_rank() || xw.rank() != 3) {
    return InvalidArgument("XW has shape {}; rank 3 is needed", xw.ToString());
  }
  const int batch_axis = c.attributes().Int("layout", 0) != 0 ? 0 : 1;
  const Dim hidden(c.attributes().Int("hidden_size", 0));
  SymbolicShape all = xw;
  all[2] = hidden;
  for (int i = 0; i < c.num_outputs(); ++i) {
    c.set_output(i, c.dtype(kLayerXw), i == 0 ? all : SymbolicShape({xw[batch_axis], hidden}));
  }
  return absl::OkStatus();
}

std::string Lower(std::string s) {
  std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return std::tolower(c); });
  return s;
}

bool In(const std::string& name, std::initializer_list<const char*> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Activations are listed per direction; each takes as many entries of alphas and betas as it needs.
void PickActivations(const Attributes& all, int direction, int directions, Attributes& one) {
  const std::vector<std::string> names = all.Strings("activations");
  if (names.empty()) return;
  const std::vector<float> alphas = all.Floats("activation_alpha");
  const std::vector<float> betas = all.Floats("activation_beta");
  const size_t per_direction = names.size() / static_cast<size_t>(directions);
  const size_t first = per_direction * static_cast<size_t>(direction);
  std::vector<std::string> my_names;
  std::vector<float> my_alphas;
  std::vector<float> my_betas;
  size_t alpha = 0;
  size_t beta = 0;
  for (size_t i = 0; i < first + per_direction; ++i) {
    const std::string name = Lower(names[i]);
    if (i >= first) my_names.push_back(names[i]);
    if (In(name, {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}) &&
        alpha < alphas.size()) {
      if (i >= first) my_alphas.push_back(alphas[alpha]);
      ++alpha;
    }
    if (In(name, {"affine", "scaledtanh", "hardsigmoid"}) && beta < betas.size()) {
      if (i >= first) my_betas.push_back(betas[beta]);
      ++beta;
    }
  }
  one.Set("activations", std::move(my_names));
  if (!my_alphas.empty()) one.Set("activation_alpha", std::move(my_alphas));
  if (!my_betas.empty()) one.Set("activation_beta", std::move(my_betas));
}

bool IsRecurrent(const Node& node) {
  return Is(node, "LSTM") || Is(node, "GRU") || Is(node, "RNN");
}

class Lowering {
 public:
  Lowering(const Graph& graph, const Node& node, GraphWriter& writer)
      : graph_(graph), node_(node), writer_(writer) {}

  // The values of Y, Y_h and Y_c.
  StatusOr<std::vector<ValueId>> Run() {
    const std::string direction = Lower(node_.attributes.String("direction", "forward"));
    const bool both = direction == "bidirectional";
    directions_ = both ? 2 : 1;
    batch_first_ = node_.attributes.Int("layout", 0) != 0;
    const SymbolicShape& r = graph_.values[node_.inputs[2]].shape;
    if (!r.has_rank() || r.rank() != 3 || !r[2].known() || r[2].value() < 1) {
      return Unimplemented("{}: the shape of its weights is not known", node_.Describe());
    }
    hidden_ = r[2].value();
    std::vector<std::vector<ValueId>> joined(3);
    for (int d = 0; d < directions_; ++d) {
      const std::vector<ValueId> outputs = Layer(d, both ? d == 1 : direction == "reverse");
      for (size_t i = 0; i < outputs.size(); ++i) {
        const int axis = i == 0 ? (batch_first_ ? 2 : 1) : (batch_first_ ? 1 : 0);
        joined[i].push_back(writer_.Unsqueeze(outputs[i], axis));
      }
    }
    std::vector<ValueId> results;
    for (size_t i = 0; i < 3; ++i) {
      if (joined[i].empty()) continue;
      const int axis = i == 0 ? (batch_first_ ? 2 : 1) : (batch_first_ ? 1 : 0);
      results.push_back(directions_ == 1 ? joined[i][0] : writer_.Concat(joined[i], axis));
    }
    return results;
  }

 private:
  ValueId Input(size_t i) const { return i < node_.inputs.size() ? node_.inputs[i] : kNoValue; }

  // Steps are counted in int64 too: this is the value that exporters convert for the operator.
  ValueId Lengths() const {
    const ValueId id = Input(4);
    for (const Node& made : graph_.nodes) {
      if (id == kNoValue || !Is(made, "Cast") || made.outputs[0] != id) continue;
      if (graph_.values[made.inputs[0]].dtype == DType::kInt64) return made.inputs[0];
    }
    return id;
  }

  // One direction of an input [directions, ...]; kNoValue if absent.
  ValueId OfDirection(size_t input, int d, int64_t axis = 0) {
    const ValueId id = Input(input);
    if (id == kNoValue) return kNoValue;
    return directions_ == 1 ? writer_.Squeeze(id, axis) : writer_.Pick(id, d, axis);
  }

  ValueId Half(ValueId bias, int64_t half, int64_t size) {
    return writer_.Op("Slice",
                      {bias, writer_.Ints({half * size}), writer_.Ints({half * size + size})});
  }

  std::vector<ValueId> Layer(int d, bool reverse) {
    const std::string& cell = node_.def->name;
    const int64_t gates = cell == "LSTM" ? 4 : cell == "GRU" ? 3 : 1;
    const bool reset_after = cell == "GRU" && node_.attributes.Int("linear_before_reset", 0) != 0;
    ValueId xw = writer_.Op("MatMul", {Input(0), writer_.Transpose(OfDirection(1, d), {1, 0})});
    ValueId rb = kNoValue;
    if (const ValueId bias = OfDirection(3, d); bias != kNoValue) {
      ValueId wb = Half(bias, 0, gates * hidden_);
      rb = Half(bias, 1, gates * hidden_);
      // Both biases go into the same sum, unless the reset gate is applied between them.
      if (!reset_after) {
        wb = writer_.Op("Add", {wb, rb});
        rb = kNoValue;
      }
      xw = writer_.Op("Add", {xw, wb});
    }
    Attributes attributes;
    attributes.Set("cell", cell);
    attributes.Set("hidden_size", hidden_);
    attributes.Set("reverse", int64_t{reverse});
    attributes.Set("layout", int64_t{batch_first_});
    for (const char* name : {"clip", "input_forget", "linear_before_reset"}) {
      const auto& values = node_.attributes.values();
      if (const auto it = values.find(name); it != values.end()) attributes.Set(name, it->second);
    }
    PickActivations(node_.attributes, d, directions_, attributes);
    const int64_t axis = batch_first_ ? 1 : 0;
    std::vector<ValueId> inputs(7, kNoValue);
    inputs[kLayerXw] = xw;
    inputs[kLayerR] = OfDirection(2, d);
    inputs[kLayerRb] = rb;
    inputs[kLayerPeepholes] = cell == "LSTM" ? OfDirection(7, d) : kNoValue;
    inputs[kLayerLengths] = Lengths();
    inputs[kLayerH] = OfDirection(5, d, axis);
    inputs[kLayerC] = cell == "LSTM" ? OfDirection(6, d, axis) : kNoValue;
    std::vector<ValueId> outputs = writer_.Call(RecurrentLayerOperator(), std::move(inputs),
                                                cell == "LSTM" ? 3 : 2, std::move(attributes));
    const std::string which = directions_ == 1 ? "" : reverse ? ".reverse" : ".forward";
    writer_.last().name = node_.name + which;
    writer_.Name(xw, node_.name + which + ".xw");
    static constexpr const char* kNames[] = {".y", ".h", ".c"};
    for (size_t i = 0; i < outputs.size(); ++i) {
      writer_.Name(outputs[i], node_.name + which + kNames[i]);
    }
    return outputs;
  }

  const Graph& graph_;
  const Node& node_;
  GraphWriter& writer_;
  int directions_ = 1;
  bool batch_first_ = false;
  int64_t hidden_ = 0;
};

}  // namespace

const OperatorDef& RecurrentLayerOperator() {
  static const OperatorDef* const kDef = [] {
    auto* def = new OperatorDef;
    def->domain = "chairlift";
    def->name = "RecurrentLayer";
    def->min_inputs = 2;
    def->max_inputs = 7;
    def->max_outputs = 3;
    def->infer = InferLayer;
    return def;
  }();
  return *kDef;
}

bool IsRecurrentLayer(const Node& node) { return node.def == &RecurrentLayerOperator(); }

StatusOr<int> LowerRecurrent(Graph& graph) {
  std::vector<Node> old = std::move(graph.nodes);
  graph.nodes.clear();
  int count = 0;
  for (Node& node : old) {
    if (!IsRecurrent(node)) {
      graph.nodes.push_back(std::move(node));
      continue;
    }
    const size_t first = graph.nodes.size();
    GraphWriter writer(graph, graph.nodes, node.name + "/");
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<ValueId> results,
                               Lowering(graph, node, writer).Run());
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      // The value that is read already is now the result of a new node.
      for (size_t made = first; made < graph.nodes.size(); ++made) {
        std::vector<ValueId>& outputs = graph.nodes[made].outputs;
        std::replace(outputs.begin(), outputs.end(), results[i], node.outputs[i]);
      }
    }
    ++count;
  }
  return count;
}

}  // namespace chairlift
