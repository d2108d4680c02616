// Converts a float32 graph to 16-bit computation.
#ifndef CHAIRLIFT_GRAPH_NARROW_H_
#define CHAIRLIFT_GRAPH_NARROW_H_

#include "graph/ir.h"

namespace chairlift {

// float32 values inside the graph become `to` (float16 or bfloat16), including constants, which are
// clamped to its range. Inputs and outputs keep their types. Operators that do not support `to`
// compute in float32. Run it after the passes, which look for float32. kUnimplemented if a node has
// sub-graphs.
Status NarrowFloats(Graph& graph, DType to);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_NARROW_H_
