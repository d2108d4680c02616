// A graph that rounds nothing on its way.
#ifndef CHAIRLIFT_GRAPH_FULL_PRECISION_H_
#define CHAIRLIFT_GRAPH_FULL_PRECISION_H_

#include <optional>

#include "graph/ir.h"

namespace chairlift {

// The graph with all products in float32, where it allows some of them to round what they multiply
// (MatMulNBits with accuracy_level 4); nullopt where it allows none. What differs between the two
// is how far an answer may move where sums before a rounding are added up in another order.
std::optional<Graph> InFullPrecision(const Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_FULL_PRECISION_H_
