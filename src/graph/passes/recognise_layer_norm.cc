// Recognises (x − mean) / √(var + ε) · scale + shift over the last axis, in plain operators, as
// LayerNormalization.
#include <optional>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

struct Found {
  ValueId x = kNoValue;
  ValueId scale = kNoValue;
  ValueId shift = kNoValue;  // may be absent
  double epsilon = 0;
  int last = -1;  // the node that computes the result
};

class LayerNormMatcher {
 public:
  LayerNormMatcher(const Graph& graph, const Links& links) : graph_(graph), links_(links) {}

  // If it is similar but does not match, `why` receives the reason.
  std::optional<Found> Match(const Node& sqrt, const char*& why) const {
    Found f;
    const Node* sum = Producer(sqrt.inputs[0]);
    if (sum == nullptr || !Is(*sum, "Add")) return std::nullopt;
    const auto epsilon = SplitScalar(graph_, *sum);
    if (!epsilon) return std::nullopt;
    f.epsilon = epsilon->scalar;
    const Node* variance = Producer(epsilon->other);
    if (variance == nullptr || !IsLastMean(*variance)) return std::nullopt;
    const ValueId centred = SquareRoot(variance->inputs[0]);
    if (centred == kNoValue) return std::nullopt;
    f.x = Centred(centred);
    why = "no mean is taken off what is squared";
    if (f.x == kNoValue) return std::nullopt;

    // (x − mean) / √…; exporters may compute the difference twice.
    why = "what is divided by the deviation is not x - mean";
    const int div = links_.SoleReader(sqrt.outputs[0]);
    if (div < 0 || !Is(graph_.nodes[div], "Div")) return std::nullopt;
    const Node& quotient = graph_.nodes[div];
    if (quotient.inputs[1] != sqrt.outputs[0] || Centred(quotient.inputs[0]) != f.x) {
      return std::nullopt;
    }
    why = "it is not scaled by one value a column";
    const int mul = links_.SoleReader(quotient.outputs[0]);
    if (mul < 0 || !Is(graph_.nodes[mul], "Mul")) return std::nullopt;
    f.scale = OtherInput(graph_.nodes[mul], quotient.outputs[0]);
    if (!IsVectorOf(f.scale, f.x)) return std::nullopt;
    f.last = mul;
    const int add = links_.SoleReader(graph_.nodes[mul].outputs[0]);
    if (add >= 0 && Is(graph_.nodes[add], "Add")) {
      const ValueId shift = OtherInput(graph_.nodes[add], graph_.nodes[mul].outputs[0]);
      if (IsVectorOf(shift, f.x)) {
        f.shift = shift;
        f.last = add;
      }
    }
    return f;
  }

 private:
  const Node* Producer(ValueId id) const {
    const int n = links_.producer(id);
    return n < 0 ? nullptr : &graph_.nodes[n];
  }

  // A mean over the last axis, with that axis kept as 1.
  bool IsLastMean(const Node& node) const {
    if (!Is(node, "ReduceMean") || node.attributes.Int("keepdims", 1) == 0) return false;
    const SymbolicShape& shape = graph_.values[node.inputs[0]].shape;
    const auto axes = IntegersInput(graph_, node, 1);
    if (!axes || axes->size() != 1) return false;
    return (*axes)[0] == -1 || (shape.has_rank() && (*axes)[0] == shape.rank() - 1);
  }

  // v if id is v².
  ValueId SquareRoot(ValueId id) const {
    const Node* node = Producer(id);
    if (node == nullptr) return kNoValue;
    if (Is(*node, "Mul") && node->inputs[0] == node->inputs[1]) return node->inputs[0];
    if (!Is(*node, "Pow")) return kNoValue;
    const auto integer = IntegersInput(graph_, *node, 1);
    const bool two = ScalarInput(graph_, *node, 1) == 2.0 ||
                     (integer && integer->size() == 1 && (*integer)[0] == 2);
    return two ? node->inputs[0] : kNoValue;
  }

  // x if id is x − mean(x).
  ValueId Centred(ValueId id) const {
    const Node* node = Producer(id);
    if (node == nullptr || !Is(*node, "Sub")) return kNoValue;
    const Node* mean = Producer(node->inputs[1]);
    if (mean == nullptr || !IsLastMean(*mean) || mean->inputs[0] != node->inputs[0]) {
      return kNoValue;
    }
    return node->inputs[0];
  }

  // One value per element of x's last axis.
  bool IsVectorOf(ValueId id, ValueId x) const {
    if (id == kNoValue) return false;
    const SymbolicShape& v = graph_.values[id].shape;
    const SymbolicShape& shape = graph_.values[x].shape;
    return v.has_rank() && v.rank() == 1 && shape.has_rank() && shape.rank() >= 1 &&
           v[0].Same(shape[shape.rank() - 1]);
  }

  const Graph& graph_;
  const Links& links_;
};

StatusOr<int> RunRecogniseLayerNorm(Graph& graph, std::vector<std::string>& notes) {
  const OperatorDef* def = OperatorRegistry::Builtin().Find("", "LayerNormalization");
  if (def == nullptr) return 0;
  const Links links(graph);
  const LayerNormMatcher matcher(graph, links);
  int count = 0;
  for (const Node& node : graph.nodes) {
    if (!Is(node, "Sqrt")) continue;
    const char* why = nullptr;
    const auto found = matcher.Match(node, why);
    if (!found) {
      if (why != nullptr) {
        notes.push_back(node.Describe() + ": looks like a layer normalisation, but " + why);
      }
      continue;
    }
    if (!def->input_types[0].Contains(graph.values[found->x].dtype)) {
      notes.push_back(node.Describe() + ": is part of a layer normalisation in " +
                      std::string(DTypeName(graph.values[found->x].dtype)));
      continue;
    }
    Node& last = graph.nodes[found->last];
    last.def = def;
    last.inputs = {found->x, found->scale};
    if (found->shift != kNoValue) last.inputs.push_back(found->shift);
    last.attributes = {};
    last.attributes.Set("axis", int64_t{-1});
    last.attributes.Set("epsilon", static_cast<float>(found->epsilon));
    ++count;
  }
  return count;
}

}  // namespace

Pass RecogniseLayerNorm() {
  return {"recognise_layer_norm", "put LayerNormalization for its definition written out",
          RunRecogniseLayerNorm};
}

}  // namespace chairlift
