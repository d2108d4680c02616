#include "graph/ragged/dynamic_scales.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "graph/passes/rewrite.h"

namespace chairlift::ragged {
namespace {

bool IsDynamicQuantize(const Node& node) { return Is(node, "DynamicQuantizeLinear"); }

// How values follow from the outputs of one DynamicQuantizeLinear(x), and whether it can be spread.
class Followed {
 public:
  explicit Followed(const Graph& graph) : graph_(graph), states_(graph.values.size()) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) Visit(static_cast<int>(n));
    for (const ValueId id : graph.outputs) {
      if (state(id).kind == Kind::kParameter) Refuse(state(id).source);
    }
  }

  bool CanSpread(int node) const {
    return std::find(refused_.begin(), refused_.end(), node) == refused_.end();
  }

 private:
  enum class Kind {
    kOther,
    kParameter,  // one number or a row; once spread, like x with 1 or `columns` as last dimension
    kRows,       // x's shape except for the last dimension
  };
  struct State {
    Kind kind = Kind::kOther;
    int source = -1;  // the DynamicQuantizeLinear
  };

  const State& state(ValueId id) const {
    static const State kNone;
    return id == kNoValue ? kNone : states_[static_cast<size_t>(id)];
  }
  void Set(ValueId id, Kind kind, int source) {
    if (id != kNoValue) states_[static_cast<size_t>(id)] = {kind, source};
  }
  void Refuse(int source) { refused_.push_back(source); }

  void Visit(int n) {
    const Node& node = graph_.nodes[static_cast<size_t>(n)];
    const bool quantizes = IsDynamicQuantize(node);
    if (!Follow(node)) {
      for (const ValueId id : node.inputs) {
        if (state(id).kind == Kind::kParameter) Refuse(state(id).source);
      }
    }
    if (!quantizes) return;
    const SymbolicShape& x = graph_.values[static_cast<size_t>(node.inputs[0])].shape;
    if (!x.has_rank() || x.rank() < 2) return Refuse(n);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      Set(node.outputs[i], i == 0 ? Kind::kRows : Kind::kParameter, n);
    }
  }

  // Whether the node computes the same from spread parameters. Sets its output's state.
  bool Follow(const Node& node) {
    if (Is(node, "MatMulInteger")) return FollowProduct(node);
    const bool casts = Is(node, "Cast");
    if (!casts && !Is(node, "Mul") && !Is(node, "Add") && !Is(node, "Sub") && !Is(node, "Div")) {
      return false;
    }
    State joined;
    for (const ValueId id : node.inputs) {
      const State& own = state(id);
      if (own.kind == Kind::kOther) {
        const Value& value = graph_.values[static_cast<size_t>(id)];
        if (!value.is_constant() || value.constant.shape().rank() > 1) return false;
        continue;
      }
      if (joined.source >= 0 && own.source != joined.source) return false;
      joined.source = own.source;
      joined.kind = std::max(joined.kind, own.kind);
    }
    Set(node.outputs[0], joined.kind, joined.source);
    return true;
  }

  // A zero point for each row of the left matrix.
  bool FollowProduct(const Node& node) {
    const State& left = state(node.inputs[0]);
    const SymbolicShape& right = graph_.values[static_cast<size_t>(node.inputs[1])].shape;
    if (left.kind != Kind::kRows || state(node.inputs[1]).kind != Kind::kOther ||
        !right.has_rank() || right.rank() != 2) {
      return false;
    }
    for (size_t i = 2; i < node.inputs.size(); ++i) {
      const ValueId zero = node.inputs[i];
      if (state(zero).kind == Kind::kOther) continue;
      const std::vector<ValueId>& own = graph_.nodes[static_cast<size_t>(left.source)].outputs;
      if (i != 2 || own.size() < 3 || zero != own[2]) return false;
    }
    Set(node.outputs[0], Kind::kRows, left.source);
    return true;
  }

  const Graph& graph_;
  std::vector<State> states_;
  std::vector<int> refused_;
};

}  // namespace

int SpreadDynamicScales(Graph& graph, std::string_view by, const std::optional<Dim>& rows) {
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), IsDynamicQuantize)) return 0;
  const Followed followed(graph);
  int count = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& node = graph.nodes[n];
    if (!IsDynamicQuantize(node) || !followed.CanSpread(static_cast<int>(n))) continue;
    const SymbolicShape& x = graph.values[static_cast<size_t>(node.inputs[0])].shape;
    if (rows && !x[0].Same(*rows)) continue;
    node.def = OperatorRegistry::Builtin().Find("chairlift", by);
    ++count;
  }
  return count;
}

Status PackDynamicQuantize(Context& c) {
  const Form& form = c.in(0);
  Packer& packer = c.packer();
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.Rank(0));
  if (form.fixed()) return c.Copy(form);
  const bool leading = form.leading_tokens() && rank > 2;
  const bool merged = form.merged() && form.batch == 0;
  const bool rows = form.rows() && form.batch == 0;
  if (!leading && !merged && !rows) {
    return Unimplemented("its scale does not span the tokens or the sequences of a request");
  }
  const std::string& name = c.node().name;
  Node node = c.node();
  node.inputs = {leading ? packer.DropBatch(c.packed(0), name) : c.packed(0)};
  if (!rows) node.inputs.push_back(packer.offsets());
  node.inputs.push_back(packer.requests());
  for (ValueId& output : node.outputs) {
    if (output == kNoValue) continue;
    const Value& value = packer.original().values[static_cast<size_t>(output)];
    output = packer.graph().AddValue({.name = value.name, .dtype = value.dtype});
  }
  const std::vector<ValueId> outputs = node.outputs;
  packer.graph().nodes.push_back(std::move(node));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == kNoValue) continue;
    packer.Set(c.node().outputs[i], form, leading ? packer.AddBatch(outputs[i], name) : outputs[i]);
  }
  return absl::OkStatus();
}

}  // namespace chairlift::ragged
