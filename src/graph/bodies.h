// Control flow nodes and their sub-graphs: whether they are consistent, and what they contain.
#ifndef CHAIRLIFT_GRAPH_BODIES_H_
#define CHAIRLIFT_GRAPH_BODIES_H_

#include "graph/ir.h"

namespace chairlift {

// For If, Loop and Scan: checks which sub-graphs the node has, and the number of inputs and outputs
// of both. For other operators: checks that there is no sub-graph. Passes and the runtime rely on
// this.
Status CheckBodies(const Node& node);

// A value of the graph or of its sub-graphs that has strings; null if there is none. `constants`:
// whether constants count.
const Value* FindText(const Graph& graph, bool constants);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_BODIES_H_
