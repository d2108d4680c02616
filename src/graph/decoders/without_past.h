// A decoder's graph without its past: a causal model over whole sequences.
#ifndef CHAIRLIFT_GRAPH_DECODERS_WITHOUT_PAST_H_
#define CHAIRLIFT_GRAPH_DECODERS_WITHOUT_PAST_H_

#include <cstdint>
#include <vector>

#include "graph/decoders/decoder.h"
#include "graph/decoders/pattern.h"

namespace chairlift::decoders {

struct CausalModel {
  Graph graph;  // input_ids [batch, length] → logits [batch, length, vocabulary]
  int64_t max_length = 0;
  std::vector<PassReport> passes;
};

// Names what dimensions of the inputs the sizes are.
void NameSizes(Graph& graph, const DecoderPorts& ports);
// What is known of inputs: tokens all count, and stand behind those of the past.
void StartPatterns(const Graph& graph, const DecoderPorts& ports, PatternReader& reader);

// The first three steps of the proof (decoder.h). Unimplemented names the node that stands in the
// way, and why.
StatusOr<CausalModel> WithoutPast(const Graph& graph, const DecoderPorts& ports);

}  // namespace chairlift::decoders

#endif  // CHAIRLIFT_GRAPH_DECODERS_WITHOUT_PAST_H_
