// A model that generates, as exporters write it (one step over the keys and values of all earlier
// tokens), made into one over packed tokens of requests of any age, with the earlier keys and
// values in blocks: the proof that this may be done, and the rewrite.
//
// What is taken, by the names that Hugging Face's exporters give:
//   input_ids        int64 [batch, new]
//   attention_mask   [batch, past + new], optional
//   position_ids     [batch, new], optional
//   past_key_values.N.key / .value   [batch, heads, past, columns]
//   logits           [batch, new, vocabulary]
//   present.N.key / .value           [batch, heads, past + new, columns]
// and of a model with an encoder the two files that need no past (a step follows from the model
// over all tokens so far, as below; what they give beside logits is not read):
//   encoder_model.onnx   input_ids, attention_mask [batch, source] → last_hidden_state; or
//                        input_features [batch, rows, frames]
//   decoder_model.onnx   input_ids [batch, new], encoder_hidden_states [batch, source, columns],
//                        encoder_attention_mask [batch, source] → logits
//
// Proved, operator by operator, for every past and every number of new tokens:
//   1. present = Concat(past, new keys) along the tokens (or that which an attention with its cache
//      gives, which is first written as such), and nothing but attention reads it, after repeating
//      heads at the most;
//   2. each attention hides exactly the keys behind its query (past + query < key), whatever the
//      sizes, where the mask is ones (pattern.h);
//   3. nothing else depends on the past's length but positions, past + index of the token.
// So the model, run once over a whole sequence without a past, is causal, and each of its tokens
// follows from the earlier keys and values and its own position. That model, with no past, is then
// proved to keep tokens and sequences apart (graph/ragged), where causal attention over packed
// tokens becomes attention over blocks (chairlift::PagedAttention).
//
// With an encoder it is proved, too, that nothing but keys and values of attention reads the
// source, and that this hides nothing of a source whose tokens all count. These keys and values are
// the outputs of a model of their own, encoder included, which runs once a request; attention over
// them becomes attention over blocks as well (chairlift::SourceAttention).
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
  kPositions,  // int64 [T]: the place of each token in its sequence
  kOffsets,    // int64 [R+1]: the first new token of each sequence, then their end
  kCached,     // int64 [R]: earlier tokens
  kBlocks,     // int64 [R, M]: where these and the new ones are
  kKeys,       // float [N, heads, columns, B]: blocks of keys, written in place
  kValues,     // float [N, heads, B, columns], likewise
  // With an encoder:
  kSourceLengths,  // int64 [R]: tokens of the source
  kSourceBlocks,   // int64 [R, M']: where they are, in the blocks of the same layers
};

struct DecoderInput {
  DecoderRole role = DecoderRole::kTokens;
  int layer = -1;  // of kKeys and kValues
};

struct DecoderLayer {
  int64_t heads = 0;  // of keys
  int64_t key_size = 0;
  int64_t value_size = 0;
  friend bool operator==(const DecoderLayer&, const DecoderLayer&) = default;
};

// What an encoder reads in place of tokens: [1, rows, frames] of float32, of which it makes keys
// and values of `length` places.
struct SourceFeatures {
  int64_t rows = 0, frames = 0, length = 0;
};

// An encoder, with the keys and values that a decoder's attentions read of its tokens.
struct SourceModel {
  // By layer keys, then values. Packed: [T, heads, columns] of the tokens of any number of sources;
  // else [1, length, heads, columns] of one.
  Graph graph;
  // Packed: what its inputs are. Else they are the tokens and, if it has one, the mask of ones,
  // both [1, length].
  std::vector<RaggedInput> inputs;
  bool packed = false;
  std::string not_packed;                  // why
  int64_t max_length = 0;                  // tokens of a source; 0: no limit
  DType mask = DType::kUndefined;          // undefined: there is none
  std::optional<SourceFeatures> features;  // never packed, and no mask
};

struct DecoderModel {
  // One output, [R, vocabulary]: the logits of each sequence's last new token. Not yet through the
  // passes that fuse.
  Graph graph;
  std::vector<DecoderInput> inputs;
  std::vector<DecoderLayer> layers;  // one an attention
  int64_t vocabulary = 0;
  int64_t max_length = 0;  // tokens of a sequence that it has tables for; 0: no limit
  std::optional<SourceModel> source;

  std::vector<std::string> notes;  // what was proved, in words
  std::vector<PassReport> passes;  // that ran before
};

// Where the step is found in the graph that was imported: by input and output.
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

// Whether the graph has inputs of those names at all.
bool HasPast(const Graph& graph);
bool HasSource(const Graph& graph);
inline bool IsDecoder(const Graph& graph) { return HasPast(graph) || HasSource(graph); }
// In the form above: a model of both forms in one, with an `If` on its input use_cache_branch, as
// that which has a past or, where it has a source, as that which has none; what other exporters
// name otherwise, by these names (normalise_ports.h). Others as they are.
StatusOr<Graph> NormaliseDecoder(const Graph& graph);
// Unimplemented names the input or output that does not fit.
StatusOr<DecoderPorts> FindDecoderPorts(const Graph& graph);

// `graph` as imported, shapes inferred. Unimplemented names the node that stands in the way, and
// why. `encoder`: of a model that has a source.
StatusOr<DecoderModel> MakeDecoder(const Graph& graph, const Graph* encoder = nullptr);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_DECODERS_DECODER_H_
