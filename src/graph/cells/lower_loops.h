// A Loop that takes one entry of its sequences a time, as the Scan that it is.
#ifndef CHAIRLIFT_GRAPH_CELLS_LOWER_LOOPS_H_
#define CHAIRLIFT_GRAPH_CELLS_LOWER_LOOPS_H_

#include "graph/ir.h"

namespace chairlift {

// Rewrites each Loop that runs as often as a sequence is long, whatever its body finds, and whose
// body uses the number of the step only to pick (Gather) from such sequences. Others stay as they
// are. Returns how many it rewrote; shapes must be inferred again afterwards.
StatusOr<int> LowerLoops(Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_CELLS_LOWER_LOOPS_H_
