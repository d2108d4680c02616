// Converts packed causal attention to attention over blocks of keys and values.
#ifndef CHAIRLIFT_GRAPH_DECODERS_PAGING_H_
#define CHAIRLIFT_GRAPH_DECODERS_PAGING_H_

#include "graph/decoders/decoder.h"
#include "graph/ragged/ragged.h"

namespace chairlift::decoders {

// For a causal model with one input of tokens and one output of tokens, its logits. Unimplemented
// names a node that reads other tokens and is not a causal attention. `passes` and `notes` of the
// result stay empty.
StatusOr<DecoderModel> Page(RaggedModel ragged);

}  // namespace chairlift::decoders

#endif  // CHAIRLIFT_GRAPH_DECODERS_PAGING_H_
