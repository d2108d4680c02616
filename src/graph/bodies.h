// What a node of control flow and its sub-graphs must agree on.
#ifndef CHAIRLIFT_GRAPH_BODIES_H_
#define CHAIRLIFT_GRAPH_BODIES_H_

#include "graph/ir.h"

namespace chairlift {

// If, Loop and Scan: which sub-graphs the node has, and how many inputs and outputs they and the
// node have. Other operators: that there is no sub-graph. Passes and the runtime rely on it.
Status CheckBodies(const Node& node);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_BODIES_H_
