// Consistency of control flow nodes with their sub-graphs.
#ifndef CHAIRLIFT_GRAPH_BODIES_H_
#define CHAIRLIFT_GRAPH_BODIES_H_

#include "graph/ir.h"

namespace chairlift {

// For If, Loop and Scan: checks which sub-graphs the node has, and the number of inputs and outputs
// of both. For other operators: checks that there is no sub-graph. Passes and the runtime rely on
// this.
Status CheckBodies(const Node& node);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_BODIES_H_
