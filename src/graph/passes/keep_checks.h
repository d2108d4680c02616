// What a pass must leave so that requests are still refused that were.
#ifndef CHAIRLIFT_GRAPH_PASSES_KEEP_CHECKS_H_
#define CHAIRLIFT_GRAPH_PASSES_KEEP_CHECKS_H_

#include <vector>

#include "graph/ir.h"

namespace chairlift {

// A node that a pass would take out.
struct Removal {
  bool wanted = false;
  int kept_input = -1;  // the input that is read in place of its output; -1: none
};

// Takes back the removals, one a node, that would leave a node unread which may refuse a request.
// Shape rules take requests to be valid: the shape of Add(x, y) may be known while Add has still to
// check x against y. A node that no output depended on before may go.
void KeepChecks(const Graph& graph, std::vector<Removal>& removals);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_PASSES_KEEP_CHECKS_H_
