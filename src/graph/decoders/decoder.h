// Converts a model that generates. As exporters write it, it is one step over the keys and values
// of all earlier tokens. The result runs on the packed tokens of requests of any age, with earlier
// keys and values in blocks. This file has the proof that this is correct, and the rewrite.
//
// Supported inputs and outputs, with the names that Hugging Face's exporters use:
//   input_ids        int64 [batch, new]
//   attention_mask   [batch, past + new], optional
//   position_ids     [batch, new], optional
//   past_key_values.N.key / .value   [batch, heads, past, columns]
//   logits           [batch, new, vocabulary]
//   present.N.key / .value           [batch, heads, past + new, columns]
// For a model with an encoder, two files. The decoder has the past of its own tokens, or none: then
// the step is derived from the model over all tokens so far, see below. Outputs that are neither
// logits nor such a past are ignored.
//   encoder_model.onnx   input_ids, attention_mask [batch, source] → last_hidden_state; or
//                        input_features [batch, rows, frames]
//   decoder_model.onnx   input_ids [batch, new], encoder_hidden_states [batch, source, columns],
//                        encoder_attention_mask [batch, source] → logits
//
// Proved, operator by operator, for every past and every number of new tokens:
//   1. present = Concat(past, new keys) along the tokens (or the output of an attention with a
//      cache, which is first written in this form). Only attention reads it, possibly after
//      repeating heads.
//   2. If the mask is ones, each attention hides exactly the keys after its query (past + query <
//      key), for all sizes (pattern.h).
//   3. Nothing else depends on the past's length except positions, past + index of the token.
// So the model, run once over a whole sequence without a past, is causal. Each of its tokens
// depends only on the earlier keys and values and on its own position. That model without a past is
// then proved to keep tokens and sequences apart (graph/ragged). Causal attention over packed
// tokens becomes attention over blocks (chairlift::PagedAttention).
//
// With an encoder it is also proved that only keys and values of attention read the source, and
// that no token of a source is hidden if all are valid. These keys and values are the outputs of a
// separate model, encoder included, which runs once per request. Attention over them also becomes
// attention over blocks (chairlift::SourceAttention).
#ifndef CHAIRLIFT_GRAPH_DECODERS_DECODER_H_
#define CHAIRLIFT_GRAPH_DECODERS_DECODER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/ir.h"
#include "graph/passes/pass.h"
#include "graph/ragged/ragged.h"

namespace chairlift {

enum class DecoderRole {
  kTokens,     // int64 [T]
  kPositions,  // int64 [T]: the position of each token in its sequence
  kOffsets,    // int64 [R+1]: the first new token of each sequence, then the end of the last
  kCached,     // int64 [R]: number of earlier tokens
  kBlocks,     // int64 [R, M]: blocks of these and the new tokens
  kKeys,       // float [N, heads, columns, B]: blocks of keys, updated in place
  kValues,     // float [N, heads, B, columns]: the same for values
  // With an encoder:
  kSourceLengths,  // int64 [R]: number of source tokens
  kSourceBlocks,   // int64 [R, M']: their blocks, in the block arrays of the same layers
};

struct DecoderInput {
  DecoderRole role = DecoderRole::kTokens;
  int layer = -1;  // for kKeys and kValues
};

struct DecoderLayer {
  int64_t heads = 0;  // of keys
  int64_t key_size = 0;
  int64_t value_size = 0;
  friend bool operator==(const DecoderLayer&, const DecoderLayer&) = default;
};

// What an encoder reads instead of tokens: float32 [1, rows, frames], from which it computes keys
// and values of `length` positions.
struct SourceFeatures {
  int64_t rows = 0, frames = 0, length = 0;
};

// An encoder with the keys and values that a decoder's attentions read for its tokens.
struct SourceModel {
  // By layer: keys, then values. Packed: [T, heads, columns] for the tokens of any number of
  // sources. Otherwise [1, length, heads, columns] for one source.
  Graph graph;
  // Packed: the roles of its inputs. Otherwise its inputs are the tokens and, if it has one, the
  // mask of ones, both [1, length].
  std::vector<RaggedInput> inputs;
  bool packed = false;
  std::string not_packed;                  // the reason, if it is not packed
  int64_t max_length = 0;                  // maximum tokens of a source; 0: no limit
  DType mask = DType::kUndefined;          // kUndefined: no mask
  std::optional<SourceFeatures> features;  // never packed, without a mask
};

struct DecoderModel {
  // One output, [R, vocabulary]: the logits of each sequence's last new token. The fusing passes
  // have not run yet.
  Graph graph;
  std::vector<DecoderInput> inputs;
  std::vector<DecoderLayer> layers;  // one per attention
  int64_t vocabulary = 0;
  int64_t max_length = 0;  // maximum tokens of a sequence, by the size of its tables; 0: no limit
  std::optional<SourceModel> source;
  // Scales span the new tokens of a sequence in a step. So a prompt must run in one step, without
  // the keys and values of another prompt, and what was computed must not be computed again.
  bool whole_prompts = false;

  std::vector<std::string> notes;  // what was proved, in words
  std::vector<PassReport> passes;  // that ran on the original
};

// The step's inputs and outputs in the imported graph.
struct DecoderPorts {
  int tokens = -1, mask = -1, positions = -1;
  struct Cache {
    std::string name;  // "past_key_values.0.key"
    int input = -1, output = -1;
    int64_t heads = 0, columns = 0;
  };
  std::vector<Cache> caches;
  int source = -1, source_mask = -1;
  int logits = -1;
};

// Whether the graph has inputs with such names.
bool HasPast(const Graph& graph);
bool HasSource(const Graph& graph);
inline bool IsDecoder(const Graph& graph) { return HasPast(graph) || HasSource(graph); }
// The graph in the form above. A model with both forms and an `If` on its input use_cache_branch
// becomes the one with a past, or, if it has a source, the one without. Inputs and outputs that
// other exporters name differently are renamed (normalise_ports.h). Other graphs are unchanged.
StatusOr<Graph> NormaliseDecoder(const Graph& graph);
// Unimplemented names the input or output that does not fit.
StatusOr<DecoderPorts> FindDecoderPorts(const Graph& graph);

// `graph` as imported, with inferred shapes. Unimplemented names the node that prevents the
// conversion, and the reason. `encoder`: for a model with a source.
StatusOr<DecoderModel> MakeDecoder(const Graph& graph, const Graph* encoder = nullptr);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_DECODERS_DECODER_H_
