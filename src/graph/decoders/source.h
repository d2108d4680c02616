// Joins the encoder of a decoder's source with the graph that computes keys and values from its
// tokens.
#ifndef CHAIRLIFT_GRAPH_DECODERS_SOURCE_H_
#define CHAIRLIFT_GRAPH_DECODERS_SOURCE_H_

#include "graph/decoders/decoder.h"

namespace chairlift::decoders {

// `encoder` as imported; `keys`: for encoder_hidden_states (CausalModel::source). Packed if that is
// proved correct (graph/ragged). Unimplemented names the encoder's input or output that does not
// fit.
StatusOr<SourceModel> JoinSource(const Graph& encoder, const Graph& keys);

}  // namespace chairlift::decoders

#endif  // CHAIRLIFT_GRAPH_DECODERS_SOURCE_H_
