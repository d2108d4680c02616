// x · gate(x) in plain operators: Silu (sigmoid), HardSwish (hard sigmoid, or clip(x + 3, 0, 6) /
// 6), Mish (tanh of softplus).
#include <optional>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

struct Gate {
  const char* domain;
  const char* name;
};

class GatesMatcher {
 public:
  GatesMatcher(const Graph& graph, const Links& links) : graph_(graph), links_(links) {}

  // The operator that x · `gate` equals.
  std::optional<Gate> Match(ValueId x, ValueId gate) const {
    const Node* node = Producer(gate);
    if (node == nullptr) return std::nullopt;
    if (Is(*node, "Sigmoid") && node->inputs[0] == x) return Gate{"chairlift", "Silu"};
    if (Is(*node, "HardSigmoid") && node->inputs[0] == x &&
        Near(node->attributes.Float("alpha", 0.2f), 1.0 / 6) &&
        Near(node->attributes.Float("beta", 0.5f), 0.5)) {
      return Gate{"", "HardSwish"};
    }
    if (Is(*node, "Tanh")) {
      const Node* softplus = Producer(node->inputs[0]);
      if (softplus != nullptr && Is(*softplus, "Softplus") && softplus->inputs[0] == x) {
        return Gate{"", "Mish"};
      }
    }
    if (const auto whole = Scaled(*node, 1.0 / 6)) {
      if (IsRelu6Of3(*whole, x)) return Gate{"", "HardSwish"};
    }
    return std::nullopt;
  }

  // If `node` is v · factor: v.
  std::optional<ValueId> Scaled(const Node& node, double factor) const {
    const auto parts = SplitScalar(graph_, node);
    if (!parts) return std::nullopt;
    if (Is(node, "Mul") && Near(parts->scalar, factor)) return parts->other;
    if (Is(node, "Div") && node.inputs[0] == parts->other && Near(parts->scalar, 1 / factor)) {
      return parts->other;
    }
    return std::nullopt;
  }

  // clip(x + 3, 0, 6)
  bool IsRelu6Of3(ValueId id, ValueId x) const {
    const Node* clip = Producer(id);
    if (clip == nullptr || !Is(*clip, "Clip") || ScalarInput(graph_, *clip, 1) != 0.0 ||
        ScalarInput(graph_, *clip, 2) != 6.0) {
      return false;
    }
    const Node* sum = Producer(clip->inputs[0]);
    if (sum == nullptr || !Is(*sum, "Add")) return false;
    const auto parts = SplitScalar(graph_, *sum);
    return parts && parts->other == x && parts->scalar == 3;
  }

  const Node* Producer(ValueId id) const {
    const int n = links_.producer(id);
    return n < 0 ? nullptr : &graph_.nodes[n];
  }

 private:
  const Graph& graph_;
  const Links& links_;
};

StatusOr<int> RunRecogniseGates(Graph& graph, std::vector<std::string>&) {
  const Links links(graph);
  const GatesMatcher matcher(graph, links);
  int count = 0;
  for (Node& node : graph.nodes) {
    std::optional<Gate> gate;
    ValueId x = kNoValue;
    if (Is(node, "Mul") && node.inputs.size() == 2) {
      for (int i = 0; i < 2 && !gate; ++i) {
        x = node.inputs[i];
        gate = matcher.Match(x, node.inputs[1 - i]);
      }
    }
    if (!gate) {
      // (x · clip(x + 3, 0, 6)) / 6
      const auto product = matcher.Scaled(node, 1.0 / 6);
      const Node* inner = product ? matcher.Producer(*product) : nullptr;
      if (inner == nullptr || !Is(*inner, "Mul") || inner->inputs.size() != 2) continue;
      for (int i = 0; i < 2 && !gate; ++i) {
        x = inner->inputs[i];
        if (matcher.IsRelu6Of3(inner->inputs[1 - i], x)) gate = Gate{"", "HardSwish"};
      }
    }
    if (!gate || !SameShape(graph.values[x].shape, graph.values[node.outputs[0]].shape)) continue;
    const OperatorDef* def = OperatorRegistry::Builtin().Find(gate->domain, gate->name);
    const DType dtype = graph.values[x].dtype;
    if (def == nullptr || !def->input_types[0].Contains(dtype)) continue;
    node.def = def;
    node.inputs = {x};
    node.attributes = {};
    ++count;
  }
  return count;
}

}  // namespace

Pass RecogniseGates() {
  return {"recognise_gates", "put Silu, HardSwish and Mish for their definitions written out",
          RunRecogniseGates};
}

}  // namespace chairlift
