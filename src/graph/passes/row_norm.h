// What a LayerNormalization must be for its rows to be taken in by a fused kernel.
#ifndef CHAIRLIFT_GRAPH_PASSES_ROW_NORM_H_
#define CHAIRLIFT_GRAPH_PASSES_ROW_NORM_H_

#include <string>

#include "graph/ir.h"

namespace chairlift {

// Why the node is none: it must normalise float32 over the last axis alone, with a scale and shift
// that are constants (others might depend on what is fused), and give out the result only. Empty
// where it is one.
std::string RowNormProblem(const Graph& graph, const Node& norm);

// The node as `def`, which has a LayerNormalization's epsilon, and x as a second output where that
// is read elsewhere.
void SetRowNorm(Node& norm, const OperatorDef* def, std::vector<ValueId> inputs, ValueId sum);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_PASSES_ROW_NORM_H_
