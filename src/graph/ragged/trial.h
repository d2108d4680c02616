// A packed model tried against the original one: the last guard against a wrong proof.
#ifndef CHAIRLIFT_GRAPH_RAGGED_TRIAL_H_
#define CHAIRLIFT_GRAPH_RAGGED_TRIAL_H_

#include "graph/ragged/ragged.h"

namespace chairlift::ragged {

// Runs a few short requests packed together and each of them alone on the original graph.
// Unimplemented where answers differ by more than rounding. What the original cannot run is not
// compared, and noted in the model.
Status TryPacked(const Graph& original, RaggedModel& model);

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_TRIAL_H_
