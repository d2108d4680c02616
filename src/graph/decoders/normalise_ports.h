// Converts other forms of a decoder's inputs and outputs to those that FindDecoderPorts expects.
#ifndef CHAIRLIFT_GRAPH_DECODERS_NORMALISE_PORTS_H_
#define CHAIRLIFT_GRAPH_DECODERS_NORMALISE_PORTS_H_

#include <optional>
#include <string>

#include "graph/ir.h"

namespace chairlift::decoders {

// The N of past_N [2, batch, heads, past, columns], a layer's keys and values in one; nothing if
// the value is something else. onnxruntime's own scripts write GPT-2 in this form.
std::optional<std::string> JoinedLayer(const Value& value);

// Splits input `past_N` and output `present_N` into `past_key_values.N.key`, `.value`,
// `present.N.key` and `.value`, and makes int32 input_ids int64. A graph with neither is unchanged.
// Unimplemented names an output that does not fit.
Status NormalisePorts(Graph& graph);

}  // namespace chairlift::decoders

#endif  // CHAIRLIFT_GRAPH_DECODERS_NORMALISE_PORTS_H_
