// A graph of float16 that computes in float32.
#ifndef CHAIRLIFT_GRAPH_WIDEN_H_
#define CHAIRLIFT_GRAPH_WIDEN_H_

#include "graph/ir.h"

namespace chairlift {

// Whether any value is float16, in sub-graphs too.
bool HasFloat16(const Graph& graph);

// What is float16 becomes float32: constants, inputs and outputs included, in sub-graphs too. So
// nothing is rounded to 16 bits any more on the way. The largest and the least number become those
// of float32 in masks alone (graph/additive_masks.h): elsewhere they stay 65504. A graph without
// float16 stays as it is.
Status WidenFloats(Graph& graph);

// The same, but inputs and outputs of the graph, which is no body of a node, keep their types.
Status WidenInside(Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_WIDEN_H_
