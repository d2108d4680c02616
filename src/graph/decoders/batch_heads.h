// Heads that some exporters put on one axis with the batch, on an axis of their own.
#ifndef CHAIRLIFT_GRAPH_DECODERS_BATCH_HEADS_H_
#define CHAIRLIFT_GRAPH_DECODERS_BATCH_HEADS_H_

#include "graph/decoders/decoder.h"
#include "graph/ir.h"

namespace chairlift::decoders {

// PyTorch's batched products (torch.bmm, baddbmm), as BLOOM has them, are exported as
//     [batch, heads, n, m] → [batch·heads, n, m] → products, sums, softmax → [batch, heads, n, k]
// which becomes the same over [batch, heads, n, m]. Returns how often. Inputs must have the names
// of sizes (NameSizes); shapes must be inferred again.
int SplitBatchHeads(Graph& graph, const DecoderPorts& ports);

}  // namespace chairlift::decoders

#endif  // CHAIRLIFT_GRAPH_DECODERS_BATCH_HEADS_H_
