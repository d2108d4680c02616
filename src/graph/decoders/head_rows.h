// Rows of heads, which some exporters put on one axis with the tokens, on an axis of their own.
#ifndef CHAIRLIFT_GRAPH_DECODERS_HEAD_ROWS_H_
#define CHAIRLIFT_GRAPH_DECODERS_HEAD_ROWS_H_

#include "graph/ir.h"

namespace chairlift::decoders {

// onnxruntime-genai normalises queries and keys by head as
//     [batch, tokens, heads·n] → [batch, tokens·heads, n] → … row by row → [batch, tokens, heads·n]
// which becomes the same over [batch, tokens, heads, n], so that tokens keep an axis. Returns how
// often. Shapes must be inferred, and are to be anew.
int SplitHeadRows(Graph& graph);

}  // namespace chairlift::decoders

#endif  // CHAIRLIFT_GRAPH_DECODERS_HEAD_ROWS_H_
