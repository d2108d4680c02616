#include "graph/passes/activation.h"

#include <limits>

#include "graph/passes/rewrite.h"

namespace chairlift {

std::optional<FusedActivation> ActivationOf(const Graph& graph, const Node& node) {
  if (node.inputs.empty() || node.inputs[0] == kNoValue ||
      graph.values[node.inputs[0]].dtype != DType::kFloat) {
    return std::nullopt;
  }
  const Attributes& a = node.attributes;
  if (Is(node, "Silu", "chairlift")) return FusedActivation{"Silu"};
  for (const char* name : {"Relu", "Sigmoid", "Tanh", "HardSwish"}) {
    if (Is(node, name)) return FusedActivation{name};
  }
  if (Is(node, "LeakyRelu")) return FusedActivation{"LeakyRelu", a.Float("alpha", 0.01f)};
  if (Is(node, "Elu")) return FusedActivation{"Elu", a.Float("alpha", 1.0f)};
  if (Is(node, "HardSigmoid")) {
    return FusedActivation{"HardSigmoid", a.Float("alpha", 0.2f), a.Float("beta", 0.5f)};
  }
  if (Is(node, "Gelu")) {
    return FusedActivation{a.String("approximate", "none") == "tanh" ? "GeluTanh" : "Gelu"};
  }
  if (Is(node, "Clip")) {
    FusedActivation clip{"Clip", std::numeric_limits<float>::lowest(),
                         std::numeric_limits<float>::max()};
    for (int i = 1; i < static_cast<int>(node.inputs.size()); ++i) {
      if (node.inputs[i] == kNoValue) continue;
      const auto bound = ScalarInput(graph, node, i);
      if (!bound) return std::nullopt;
      (i == 1 ? clip.alpha : clip.beta) = static_cast<float>(*bound);
    }
    return clip;
  }
  return std::nullopt;
}

void SetActivation(Attributes& attributes, const FusedActivation& activation) {
  attributes.Set("activation", activation.name);
  attributes.Set("activation_alpha", activation.alpha);
  attributes.Set("activation_beta", activation.beta);
}

}  // namespace chairlift
