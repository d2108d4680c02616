// A copy of a graph without intermediate rounding.
#ifndef CHAIRLIFT_GRAPH_FULL_PRECISION_H_
#define CHAIRLIFT_GRAPH_FULL_PRECISION_H_

#include <optional>

#include "graph/ir.h"

namespace chairlift {

// The graph with all matrix products in float32, if it allows some of them to round their operands
// (MatMulNBits with accuracy_level 4); nullopt if it allows none. The difference between both shows
// how far an answer may move if sums before a rounding are added in another order.
std::optional<Graph> InFullPrecision(const Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_FULL_PRECISION_H_
