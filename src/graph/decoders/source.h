// The encoder of a decoder's source, joined by what makes keys and values of its tokens.
#ifndef CHAIRLIFT_GRAPH_DECODERS_SOURCE_H_
#define CHAIRLIFT_GRAPH_DECODERS_SOURCE_H_

#include "graph/decoders/decoder.h"

namespace chairlift::decoders {

// `encoder` as imported; `keys`: of encoder_hidden_states (CausalModel::source). Packed where that
// is proved (graph/ragged). Unimplemented names the encoder's input or output that does not fit.
StatusOr<SourceModel> JoinSource(const Graph& encoder, const Graph& keys);

}  // namespace chairlift::decoders

#endif  // CHAIRLIFT_GRAPH_DECODERS_SOURCE_H_
