// Models whose dynamic scales would span the rows of a batch.
#ifndef CHAIRLIFT_GRAPH_ROW_SCALES_H_
#define CHAIRLIFT_GRAPH_ROW_SCALES_H_

#include <optional>

#include "graph/ir.h"

namespace chairlift {

// `graph` as imported, with inferred shapes. On one row the result answers as `graph` does. On
// several, each row is dynamically quantised over its own range, as it is alone. Nothing if there
// is no such scale to change.
std::optional<Graph> WithRowScales(const Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ROW_SCALES_H_
