// Recognises x/2 · (1 + erf(x/√2)), and its approximation by tanh, in plain operators as Gelu.
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "ops/input_values.h"

namespace chairlift {
namespace {

constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kSqrtTwoOverPi = 0.79788456080286535588;

class GeluMatcher {
 public:
  GeluMatcher(const Graph& graph, const Links& links) : graph_(graph), links_(links) {}

  // The x in the argument of erf or tanh.
  ValueId ErfOperand(const Node& erf) const {
    const Node* scaled = Producer(erf.inputs[0]);
    if (scaled == nullptr) return kNoValue;
    const auto parts = SplitScalar(graph_, *scaled);
    if (!parts) return kNoValue;
    if (Is(*scaled, "Mul") && Near(parts->scalar, kSqrtHalf)) return parts->other;
    if (Is(*scaled, "Div") && parts->other == scaled->inputs[0] &&
        Near(parts->scalar, 1 / kSqrtHalf)) {
      return parts->other;
    }
    return kNoValue;
  }

  // √(2/π) · (x + 0.044715·x³)
  ValueId TanhOperand(const Node& tanh) const {
    const Node* scaled = Producer(tanh.inputs[0]);
    if (scaled == nullptr || !Is(*scaled, "Mul")) return kNoValue;
    const auto outer = SplitScalar(graph_, *scaled);
    if (!outer || !Near(outer->scalar, kSqrtTwoOverPi)) return kNoValue;
    const Node* sum = Producer(outer->other);
    if (sum == nullptr || !Is(*sum, "Add") || sum->inputs.size() != 2) return kNoValue;
    for (ValueId x : sum->inputs) {
      const ValueId other = OtherInput(*sum, x);
      const Node* term = Producer(other);
      if (term == nullptr || !Is(*term, "Mul")) continue;
      const auto inner = SplitScalar(graph_, *term);
      if (inner && Near(inner->scalar, 0.044715) && IsCube(inner->other, x)) return x;
    }
    return kNoValue;
  }

  // Starting at 1 + f: the value of x/2 · (1 + f), with its factors multiplied in any order.
  ValueId Result(const Node& inside, ValueId x) const {
    const Node* sum = Reader(inside.outputs[0]);
    if (sum == nullptr || !Is(*sum, "Add")) return kNoValue;
    const auto one = SplitScalar(graph_, *sum);
    if (!one || !Near(one->scalar, 1)) return kNoValue;
    ValueId at = sum->outputs[0];
    bool has_x = false;
    bool has_half = false;
    while (!has_x || !has_half) {
      const Node* factor = Reader(at);
      if (factor == nullptr || !Is(*factor, "Mul")) return kNoValue;
      const ValueId other = OtherInput(*factor, at);
      if (other == kNoValue) return kNoValue;
      if (!has_x && other == x) {
        has_x = true;
      } else if (!has_half && IsHalf(other)) {
        has_half = true;
      } else if (!has_x && !has_half && IsHalfOf(other, x)) {
        has_x = has_half = true;
      } else {
        return kNoValue;
      }
      at = factor->outputs[0];
    }
    return at;
  }

 private:
  const Node* Producer(ValueId id) const {
    const int n = links_.producer(id);
    return n < 0 ? nullptr : &graph_.nodes[n];
  }
  const Node* Reader(ValueId id) const {
    const int n = links_.SoleReader(id);
    return n < 0 ? nullptr : &graph_.nodes[n];
  }
  bool IsHalf(ValueId id) const {
    return graph_.values[id].is_constant() && ScalarValue(graph_.values[id].constant) == 0.5;
  }
  bool IsHalfOf(ValueId id, ValueId x) const {
    const Node* node = Producer(id);
    if (node == nullptr) return false;
    const auto parts = SplitScalar(graph_, *node);
    if (!parts || parts->other != x) return false;
    return (Is(*node, "Mul") && parts->scalar == 0.5) ||
           (Is(*node, "Div") && parts->scalar == 2 && node->inputs[0] == x);
  }
  bool IsCube(ValueId id, ValueId x) const {
    const Node* node = Producer(id);
    if (node == nullptr) return false;
    if (Is(*node, "Pow")) return node->inputs[0] == x && PowerOf(*node) == 3;
    if (!Is(*node, "Mul")) return false;
    const Node* square = Producer(OtherInput(*node, x));
    if (square == nullptr) return false;
    if (Is(*square, "Pow")) return square->inputs[0] == x && PowerOf(*square) == 2;
    return Is(*square, "Mul") && square->inputs[0] == x && square->inputs[1] == x;
  }
  double PowerOf(const Node& pow) const {
    if (const auto f = ScalarInput(graph_, pow, 1)) return *f;
    const auto i = IntegersInput(graph_, pow, 1);
    return i && i->size() == 1 ? static_cast<double>((*i)[0]) : 0;
  }

  const Graph& graph_;
  const Links& links_;
};

StatusOr<int> RunRecogniseGelu(Graph& graph, std::vector<std::string>& notes) {
  const OperatorDef* gelu = OperatorRegistry::Builtin().Find("", "Gelu");
  const Links links(graph);
  const GeluMatcher matcher(graph, links);
  int count = 0;
  for (const Node& node : graph.nodes) {
    const bool erf = Is(node, "Erf");
    if (!erf && !Is(node, "Tanh")) continue;
    const ValueId x = erf ? matcher.ErfOperand(node) : matcher.TanhOperand(node);
    if (x == kNoValue) continue;
    const ValueId result = matcher.Result(node, x);
    if (result == kNoValue || !SameShape(graph.values[result].shape, graph.values[x].shape)) {
      notes.push_back(node.Describe() + ": looks like Gelu, but its factors differ");
      continue;
    }
    Node& last = graph.nodes[links.producer(result)];
    last.def = gelu;
    last.inputs = {x};
    last.attributes = {};
    if (!erf) last.attributes.Set("approximate", std::string("tanh"));
    ++count;
  }
  return count;
}

}  // namespace

Pass RecogniseGelu() {
  return {"recognise_gelu", "put Gelu for its definition written out", RunRecogniseGelu};
}

}  // namespace chairlift
