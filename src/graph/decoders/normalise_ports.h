// Converts other forms of a decoder's inputs and outputs to those that FindDecoderPorts expects.
#ifndef CHAIRLIFT_GRAPH_DECODERS_NORMALISE_PORTS_H_
#define CHAIRLIFT_GRAPH_DECODERS_NORMALISE_PORTS_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/ir.h"

namespace chairlift::decoders {

// The N of past_N [2, batch, heads, past, columns], a layer's keys and values in one; nothing if
// the value is something else. onnxruntime's own scripts write GPT-2 in this form.
std::optional<std::string> JoinedLayer(const Value& value);

// By place: inputs [batch, heads, past, columns] whose names are not those of a past, and outputs
// that are Concat(input, new) along axis 2. torch.export has names of its own for what it flattens
// ("past_key_values_key_cache_0", "past_0_1"), and names outputs after operators ("cat_5"). Empty
// if the graph has no input_ids.
std::vector<std::pair<size_t, size_t>> GrownPorts(const Graph& graph);

// GrownPorts() get the names of a past. Input `past_N` becomes `past_key_values.N.key` and
// `.value`, and output `present_N` becomes `present.N.key` and `.value`. An int32 input_ids becomes
// int64. A graph without any of these is not changed. Unimplemented names an output that does not
// fit.
Status NormalisePorts(Graph& graph);

}  // namespace chairlift::decoders

#endif  // CHAIRLIFT_GRAPH_DECODERS_NORMALISE_PORTS_H_
