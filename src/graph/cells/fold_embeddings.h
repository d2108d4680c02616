// An embedding that is only multiplied by weights, as a table of the products.
#ifndef CHAIRLIFT_GRAPH_CELLS_FOLD_EMBEDDINGS_H_
#define CHAIRLIFT_GRAPH_CELLS_FOLD_EMBEDDINGS_H_

#include <string>
#include <vector>

#include "graph/ir.h"

namespace chairlift {

// Gather from a constant table [V, E], transposed or not, then MatMul with constant weights [E, N]
// and Add of a constant [N]: becomes a Gather from a table [V, N], where nothing else reads the
// embedding and the new tables take at most max_bytes. `notes` takes what each did to memory.
// Returns how many tables there were.
StatusOr<int> FoldEmbeddings(Graph& graph, int64_t max_bytes, std::vector<std::string>& notes);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_CELLS_FOLD_EMBEDDINGS_H_
