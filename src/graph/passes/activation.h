// Activations as attributes of FusedConv and FusedMatMul.
#ifndef CHAIRLIFT_GRAPH_PASSES_ACTIVATION_H_
#define CHAIRLIFT_GRAPH_PASSES_ACTIVATION_H_

#include <optional>

#include "graph/ir.h"
#include "ops/elementwise/fused_elementwise.h"

namespace chairlift {

// The operation of `node` on its single input, if a fused kernel can do it too; float32 only.
std::optional<FusedStep> ActivationOf(const Graph& graph, const Node& node);
void SetActivation(Attributes& attributes, const FusedStep& activation);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_PASSES_ACTIVATION_H_
