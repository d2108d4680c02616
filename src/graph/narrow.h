// A graph of float32 that computes in 16 bits.
#ifndef CHAIRLIFT_GRAPH_NARROW_H_
#define CHAIRLIFT_GRAPH_NARROW_H_

#include "graph/ir.h"

namespace chairlift {

// What is float32 inside the graph becomes `to`, float16 or bfloat16, constants included (beyond
// its range: its largest); its inputs and outputs stay as they are. Operators that do not take `to`
// compute in float32. To be run after the passes, which look for float32. kUnimplemented where a
// node has sub-graphs.
Status NarrowFloats(Graph& graph, DType to);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_NARROW_H_
