// Converts a float16 graph to computation in float32.
#ifndef CHAIRLIFT_GRAPH_WIDEN_H_
#define CHAIRLIFT_GRAPH_WIDEN_H_

#include "graph/ir.h"

namespace chairlift {

// Whether any value is float16, including sub-graphs.
bool HasFloat16(const Graph& graph);

// All float16 values become float32: constants, inputs and outputs, including sub-graphs. So no
// intermediate value is rounded to 16 bits. Only in masks (graph/additive_masks.h) do the largest
// and the lowest number become those of float32: elsewhere they stay 65504. A graph without float16
// is unchanged.
Status WidenFloats(Graph& graph);

// The same, but inputs and outputs of the graph, which must not be the body of a node, keep their
// types.
Status WidenInside(Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_WIDEN_H_
