// Converts a model's graph to the form that the proof needs.
#ifndef CHAIRLIFT_GRAPH_RAGGED_PREPARE_H_
#define CHAIRLIFT_GRAPH_RAGGED_PREPARE_H_

#include <vector>

#include "graph/ir.h"
#include "graph/passes/pass.h"

namespace chairlift::ragged {

// A copy whose inputs are [(batch), (length), ...] or [(batch), ...] (names in form.h). Its other
// shapes are inferred from those alone, whatever the file declares. Operators that exporters write
// as several nodes are fused; `passes` receives the reports. Unimplemented for other inputs.
StatusOr<Graph> Prepare(const Graph& graph, std::vector<PassReport>& passes);

// Infers all shapes again from the inputs alone, and fuses operators that exporters write as
// several nodes, including attention. Returns the reports.
StatusOr<std::vector<PassReport>> RunPreparingPasses(Graph& graph);

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_PREPARE_H_
