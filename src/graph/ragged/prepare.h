// A model's graph in the form that the proof needs.
#ifndef CHAIRLIFT_GRAPH_RAGGED_PREPARE_H_
#define CHAIRLIFT_GRAPH_RAGGED_PREPARE_H_

#include <vector>

#include "graph/ir.h"
#include "graph/passes/pass.h"

namespace chairlift::ragged {

// A copy whose inputs are [(batch), (length), ...] or [(batch), ...] (form.h has the names), whose
// other shapes follow from those alone, whatever the file declares, and in which what exporters
// write as several operators has been recognised; `passes` takes what was. Unimplemented where the
// inputs are others.
StatusOr<Graph> Prepare(const Graph& graph, std::vector<PassReport>& passes);

// Infers all shapes again, from the inputs alone, and recognises what exporters write as several
// operators, attention among them. What was.
StatusOr<std::vector<PassReport>> RunPreparingPasses(Graph& graph);

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_PREPARE_H_
