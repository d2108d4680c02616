// ONNX's own Attention as the fused kernel's.
#ifndef CHAIRLIFT_GRAPH_PASSES_LOWER_ATTENTION_H_
#define CHAIRLIFT_GRAPH_PASSES_LOWER_ATTENTION_H_

#include <string>
#include <vector>

#include "graph/ir.h"

namespace chairlift {

// Makes chairlift::Attention of every Attention node without a cache that it can stand for; returns
// how many there were. `notes` takes why others were left: they run as they are, but the kernels
// and rules of chairlift::Attention (packed tokens among them) do not know them.
int LowerAttention(Graph& graph, std::vector<std::string>& notes);

// Of the Attention nodes that have a past: it is joined with the new keys, and `causal` counts from
// the last. Their masks must have a column for each key, which is for the caller to know.
int LowerCachedAttention(Graph& graph, std::vector<std::string>& notes);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_PASSES_LOWER_ATTENTION_H_
