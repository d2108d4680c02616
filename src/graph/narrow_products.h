// Marks the matrix products that may round their operands to bfloat16 or int8.
#ifndef CHAIRLIFT_GRAPH_NARROW_PRODUCTS_H_
#define CHAIRLIFT_GRAPH_NARROW_PRODUCTS_H_

#include "graph/ir.h"

namespace chairlift {

// Marks MatMul, Gemm and their fused forms if they are float32 and all right-hand sides are
// constants. `type` is kBFloat16 or kInt8. Includes sub-graphs. Returns the number of marked nodes.
// Run it after the passes, which drop the mark.
int MarkNarrowProducts(Graph& graph, DType type);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_NARROW_PRODUCTS_H_
