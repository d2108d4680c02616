// Other forms of a decoder's inputs and outputs, as those that FindDecoderPorts takes.
#ifndef CHAIRLIFT_GRAPH_DECODERS_NORMALISE_PORTS_H_
#define CHAIRLIFT_GRAPH_DECODERS_NORMALISE_PORTS_H_

#include <optional>
#include <string>

#include "graph/ir.h"

namespace chairlift::decoders {

// The N of past_N [2, batch, heads, past, columns], keys and values of a layer in one; nothing
// where the value is something else. onnxruntime's own scripts write GPT-2 so.
std::optional<std::string> JoinedLayer(const Value& value);

// Of input and output `past_N` and `present_N`, `past_key_values.N.key` and `.value` and
// `present.N.key` and `.value`; and of int32 input_ids, int64 ones. Where the graph has neither, it
// stays as it is. Unimplemented names an output that does not fit.
Status NormalisePorts(Graph& graph);

}  // namespace chairlift::decoders

#endif  // CHAIRLIFT_GRAPH_DECODERS_NORMALISE_PORTS_H_
