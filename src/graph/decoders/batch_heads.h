// Gives heads their own axis where an exporter put them on one axis with the batch.
#ifndef CHAIRLIFT_GRAPH_DECODERS_BATCH_HEADS_H_
#define CHAIRLIFT_GRAPH_DECODERS_BATCH_HEADS_H_

#include "graph/decoders/decoder.h"
#include "graph/ir.h"

namespace chairlift::decoders {

// PyTorch's batched products (torch.bmm, baddbmm), as in BLOOM, are exported as
//     [batch, heads, n, m] → [batch·heads, n, m] → products, sums, softmax → [batch, heads, n, k]
// This becomes the same over [batch, heads, n, m]. Returns the number of rewrites. Inputs must have
// named sizes (NameSizes); shapes must be inferred again.
int SplitBatchHeads(Graph& graph, const DecoderPorts& ports);

}  // namespace chairlift::decoders

#endif  // CHAIRLIFT_GRAPH_DECODERS_BATCH_HEADS_H_
