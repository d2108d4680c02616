// Rewrites a Loop that takes one entry of its sequences per iteration as a Scan.
#ifndef CHAIRLIFT_GRAPH_CELLS_LOWER_LOOPS_H_
#define CHAIRLIFT_GRAPH_CELLS_LOWER_LOOPS_H_

#include "graph/ir.h"

namespace chairlift {

// Rewrites each Loop that runs exactly as often as a sequence is long, and whose body uses the
// iteration number only to select (Gather) from such sequences. Other loops are unchanged. Returns
// the number of rewritten loops; shapes must be inferred again afterwards.
StatusOr<int> LowerLoops(Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_CELLS_LOWER_LOOPS_H_
