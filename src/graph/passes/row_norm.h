// The conditions under which a fused kernel can include a LayerNormalization.
#ifndef CHAIRLIFT_GRAPH_PASSES_ROW_NORM_H_
#define CHAIRLIFT_GRAPH_PASSES_ROW_NORM_H_

#include <string>

#include "graph/ir.h"

namespace chairlift {

// Why the node does not fit; empty if it does. It must normalise float32 over the last axis only,
// have a constant scale and shift (others might depend on the fused nodes), and output only the
// result.
std::string RowNormProblem(const Graph& graph, const Node& norm);

// Makes the node a `def`, which has a LayerNormalization's epsilon, with x as a second output if
// that is read elsewhere.
void SetRowNorm(Node& norm, const OperatorDef* def, std::vector<ValueId> inputs, ValueId sum);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_PASSES_ROW_NORM_H_
