// Gives heads their own axis where an exporter put their rows on one axis with the tokens.
#ifndef CHAIRLIFT_GRAPH_DECODERS_HEAD_ROWS_H_
#define CHAIRLIFT_GRAPH_DECODERS_HEAD_ROWS_H_

#include "graph/ir.h"

namespace chairlift::decoders {

// onnxruntime-genai normalises queries and keys by head as
//     [batch, tokens, heads·n] → [batch, tokens·heads, n] → … row by row → [batch, tokens, heads·n]
// This becomes the same over [batch, tokens, heads, n], so that tokens keep their axis. Returns the
// number of rewrites. Shapes must be inferred before and again after it.
int SplitHeadRows(Graph& graph);

}  // namespace chairlift::decoders

#endif  // CHAIRLIFT_GRAPH_DECODERS_HEAD_ROWS_H_
