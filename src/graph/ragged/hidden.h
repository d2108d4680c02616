// Finds the hidden tokens that do not affect a packed model's answers.
#ifndef CHAIRLIFT_GRAPH_RAGGED_HIDDEN_H_
#define CHAIRLIFT_GRAPH_RAGGED_HIDDEN_H_

#include "graph/ragged/ragged.h"

namespace chairlift::ragged {

// Sets mask, rows_ignore_masked, rows_ignore_trailing and tokens_ignore_trailing of an otherwise
// complete model.
void FindHidden(RaggedModel& model);

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_HIDDEN_H_
