// Compares a packed model with the original on samples: the last check of the proof.
#ifndef CHAIRLIFT_GRAPH_RAGGED_TRIAL_H_
#define CHAIRLIFT_GRAPH_RAGGED_TRIAL_H_

#include "graph/ragged/ragged.h"

namespace chairlift::ragged {

// Runs a few short requests packed together, and each alone on the original graph. Unimplemented if
// answers differ by more than rounding. Requests that the original cannot run are not compared; the
// model's notes say so.
Status TryPacked(const Graph& original, RaggedModel& model);

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_TRIAL_H_
