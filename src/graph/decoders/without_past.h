// A decoder's graph without its past: a causal model over whole sequences.
#ifndef CHAIRLIFT_GRAPH_DECODERS_WITHOUT_PAST_H_
#define CHAIRLIFT_GRAPH_DECODERS_WITHOUT_PAST_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/decoders/decoder.h"
#include "graph/decoders/pattern.h"

namespace chairlift::decoders {

struct CausalModel {
  Graph graph;  // input_ids [batch, length] → logits [batch, length, vocabulary]
  int64_t max_length = 0;
  // Of one with an encoder: encoder_hidden_states [batch, length, columns] → keys and values that
  // each attention over them reads, in order, [batch, length, heads, columns]. In `graph` these are
  // chairlift::SourceAttention.
  std::optional<Graph> source;
  std::vector<PassReport> passes;
};

// Names what dimensions of the inputs the sizes are.
void NameSizes(Graph& graph, const DecoderPorts& ports);
// What is known of inputs: tokens all count, and stand behind those of the past.
void StartPatterns(const Graph& graph, const DecoderPorts& ports, PatternReader& reader);

// The first three steps of the proof (decoder.h). Unimplemented names the node that stands in the
// way, and why.
StatusOr<CausalModel> WithoutPast(const Graph& graph, const DecoderPorts& ports);
// The same of an encoder: [batch, length] tokens, all of which count, → [batch, length, ...], each
// of which sees all. What depends on distances alone in its masks becomes a bias by distance.
StatusOr<CausalModel> WithoutMasks(const Graph& graph, const DecoderPorts& ports);

}  // namespace chairlift::decoders

#endif  // CHAIRLIFT_GRAPH_DECODERS_WITHOUT_PAST_H_
