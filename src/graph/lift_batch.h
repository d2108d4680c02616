// Opens the batch of a graph that fixes it to 1, as torch.onnx.export writes it by default.
#ifndef CHAIRLIFT_GRAPH_LIFT_BATCH_H_
#define CHAIRLIFT_GRAPH_LIFT_BATCH_H_

#include "graph/ir.h"

namespace chairlift {

// `graph` as imported, if dimension 0 of all inputs is 1: its batch becomes open. Shapes that are
// written into the graph are opened, and constants of one row are repeated. Each row is then proved
// to be computed as the one row of `graph` is, whatever the others are. Unimplemented names what
// prevents that.
StatusOr<Graph> LiftBatch(const Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_LIFT_BATCH_H_
