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

// Also Attention nodes with a past, which is joined with the new keys; `causal` then counts from
// the last. Attribute `mask_columns` of the result is 1 if the caller must know that its mask has a
// column for each key: ONNX hides the keys behind the last column.
int LowerDecoderAttention(Graph& graph, std::vector<std::string>& notes);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_PASSES_LOWER_ATTENTION_H_
