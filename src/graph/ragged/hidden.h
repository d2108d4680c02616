// Which hidden tokens a packed model's answers do not depend on.
#ifndef CHAIRLIFT_GRAPH_RAGGED_HIDDEN_H_
#define CHAIRLIFT_GRAPH_RAGGED_HIDDEN_H_

#include "graph/ragged/ragged.h"

namespace chairlift::ragged {

// Sets mask, rows_ignore_masked, rows_ignore_trailing and tokens_ignore_trailing of a model that is
// complete otherwise.
void FindHidden(RaggedModel& model);

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_HIDDEN_H_
