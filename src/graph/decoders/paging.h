// Packed causal attention made into attention over blocks of keys and values.
#ifndef CHAIRLIFT_GRAPH_DECODERS_PAGING_H_
#define CHAIRLIFT_GRAPH_DECODERS_PAGING_H_

#include "graph/decoders/decoder.h"
#include "graph/ragged/ragged.h"

namespace chairlift::decoders {

// Of a causal model over one input of tokens and with one output of tokens, its logits.
// Unimplemented names what looks beyond a token and is no causal attention. The result's `passes`
// and `notes` are left empty.
StatusOr<DecoderModel> Page(RaggedModel ragged);

}  // namespace chairlift::decoders

#endif  // CHAIRLIFT_GRAPH_DECODERS_PAGING_H_
