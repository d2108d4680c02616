// Lowers ONNX's own Attention to the fused kernel.
#ifndef CHAIRLIFT_GRAPH_PASSES_LOWER_ATTENTION_H_
#define CHAIRLIFT_GRAPH_PASSES_LOWER_ATTENTION_H_

#include <string>
#include <vector>

#include "graph/ir.h"

namespace chairlift {

// Replaces every Attention node without a cache by chairlift::Attention if possible; returns the
// number of replacements. `notes` receives the reasons for the others. They still run, but the
// kernels and rules of chairlift::Attention (including packed tokens) do not apply to them.
int LowerAttention(Graph& graph, std::vector<std::string>& notes);

// For Attention nodes with a past: it is joined with the new keys, and `causal` counts from the
// last. The caller must know that their masks have a column for each key.
int LowerCachedAttention(Graph& graph, std::vector<std::string>& notes);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_PASSES_LOWER_ATTENTION_H_
