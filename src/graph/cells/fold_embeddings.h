// Replaces an embedding that is only multiplied by weights with a table of the products.
#ifndef CHAIRLIFT_GRAPH_CELLS_FOLD_EMBEDDINGS_H_
#define CHAIRLIFT_GRAPH_CELLS_FOLD_EMBEDDINGS_H_

#include <string>
#include <vector>

#include "graph/ir.h"

namespace chairlift {

// Gather from a constant table [V, E], transposed or not, then MatMul with constant weights [E, N]
// and Add of a constant [N] becomes a Gather from a table [V, N]. Conditions: nothing else reads
// the embedding, and the new tables take at most max_bytes. `notes` receives the effect of each on
// memory. Returns the number of new tables.
StatusOr<int> FoldEmbeddings(Graph& graph, int64_t max_bytes, std::vector<std::string>& notes);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_CELLS_FOLD_EMBEDDINGS_H_
