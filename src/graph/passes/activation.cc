#include "graph/passes/activation.h"

#include <utility>

#include "graph/passes/rewrite.h"
#include "ops/linear/activation.h"

namespace chairlift {

std::optional<FusedStep> ActivationOf(const Graph& graph, const Node& node) {
  auto step = StepOf(*node.def, node.attributes, InfosOf(graph, node.inputs));
  if (!step || step->operands[1] >= 0) return std::nullopt;
  Attributes attributes;
  SetActivation(attributes, *step);
  if (!Activation::Parse(attributes).ok()) return std::nullopt;
  return step;
}

void SetActivation(Attributes& attributes, const FusedStep& activation) {
  attributes.Set("activation", activation.name);
  attributes.Set("activation_alpha", activation.alpha);
  attributes.Set("activation_beta", activation.beta);
}

}  // namespace chairlift
