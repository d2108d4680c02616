// Keeps the checks that a pass would remove, so that invalid requests are still refused.
#ifndef CHAIRLIFT_GRAPH_PASSES_KEEP_CHECKS_H_
#define CHAIRLIFT_GRAPH_PASSES_KEEP_CHECKS_H_

#include <vector>

#include "graph/ir.h"

namespace chairlift {

// A node that a pass wants to remove.
struct Removal {
  bool wanted = false;
  int kept_input = -1;  // the input that replaces its output; -1: none
};

// Cancels those removals, one per node, that would leave a node unread which may refuse a request.
// Shape rules assume valid requests: the shape of Add(x, y) may be known although Add must still
// check x against y. A node that no output depended on before may be removed.
void KeepChecks(const Graph& graph, std::vector<Removal>& removals);

// Whether the node may refuse a request, as far as is known. It cannot if it computes sizes, if its
// operands certainly broadcast, or if it moves its only input.
bool MayRefuse(const Graph& graph, const Node& node);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_PASSES_KEEP_CHECKS_H_
