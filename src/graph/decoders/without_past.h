// Removes the past from a decoder's graph: the result is a causal model over whole sequences.
#ifndef CHAIRLIFT_GRAPH_DECODERS_WITHOUT_PAST_H_
#define CHAIRLIFT_GRAPH_DECODERS_WITHOUT_PAST_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/analysis/pattern.h"
#include "graph/decoders/decoder.h"

namespace chairlift::decoders {

using analysis::kReach;
using analysis::Line;
using analysis::Pattern;
using analysis::PatternReader;
using analysis::Size;

struct CausalModel {
  Graph graph;  // input_ids [batch, length] → logits [batch, length, vocabulary]
  int64_t max_length = 0;
  // For a model with an encoder. Input: encoder_hidden_states [batch, length, columns]. Outputs:
  // the keys and values that each attention over them reads, in order, [batch, length, heads,
  // columns]. In `graph` these attentions are chairlift::SourceAttention.
  std::optional<Graph> source;
  std::vector<PassReport> passes;
};

// Names the input dimensions that are sizes.
void NameSizes(Graph& graph, const DecoderPorts& ports);
// Patterns of the inputs: all tokens are valid and follow those of the past.
void StartPatterns(const Graph& graph, const DecoderPorts& ports, PatternReader& reader);

// The first three steps of the proof (decoder.h). Unimplemented names the node that prevents it,
// and the reason.
StatusOr<CausalModel> WithoutPast(const Graph& graph, const DecoderPorts& ports);
// The same for an encoder: [batch, length] tokens, all valid, → [batch, length, ...], where each
// token attends to all. Parts of its masks that depend on distances alone become a bias by
// distance.
StatusOr<CausalModel> WithoutMasks(const Graph& graph, const DecoderPorts& ports);

}  // namespace chairlift::decoders

#endif  // CHAIRLIFT_GRAPH_DECODERS_WITHOUT_PAST_H_
