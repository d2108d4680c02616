// A model over [batch, length] inputs made into one over packed tokens, with no padding inside: the
// proof that this may be done, and the rewrite.
//
// A batch of the packed model is any set of requests. The tokens of all their sequences are
// concatenated: T tokens of R sequences. A request of shape [batch, length] brings `batch`
// sequences of `length` tokens each. Every answer is what the model gives for that request alone,
// whatever the rest of the batch is; the proof goes operator by operator, and an operator that is
// not known to treat tokens one by one (or sequences, if a ragged operator implements it) makes it
// fail.
#ifndef CHAIRLIFT_GRAPH_RAGGED_RAGGED_H_
#define CHAIRLIFT_GRAPH_RAGGED_RAGGED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph/ir.h"
#include "graph/passes/pass.h"

namespace chairlift {

// The names of dimensions T and R of the packed graph.
inline constexpr char kTokensSymbol[] = "tokens";
inline constexpr char kSequencesSymbol[] = "sequences";

enum class RaggedRole {
  kTokens,   // [T, ...] from an original [batch, length, ...]
  kRows,     // [R, ...] from [batch, ...]
  kOffsets,  // int64 [R+1]: the first token of each sequence, then their end. Ascending from 0, at
             // most T: what T is rounded up by belongs to no sequence, what R is rounded up by are
             // empty ones.
  kPositions,  // int64 [T]: the place of the token in its sequence as the request brought it
};

struct RaggedInput {
  RaggedRole role = RaggedRole::kTokens;
  int source = -1;  // of kTokens and kRows: which input of the original graph
};

struct RaggedModel {
  // Its inputs are those of `inputs`, in order, each at most once and only where it is read; its
  // outputs are the original's. Not yet through the passes that fuse.
  Graph graph;
  std::vector<RaggedInput> inputs;
  std::vector<bool> output_is_tokens;  // by output: [T, ...] or [R, ...]

  // Original inputs of [batch, length] that must be 0 and 1 for the proof to hold.
  std::vector<int> marks;
  // The original input that marks the tokens that count (0: hidden); -1 where none is known to. The
  // next two say which hidden tokens may be left out of the packing (the others keep their
  // positions) where no [T, ...] output is requested; of a sequence without any token that counts
  // none may.
  int mask = -1;
  bool rows_ignore_masked = false;    // all of them
  bool rows_ignore_trailing = false;  // those behind the last token that counts
  // Whether these change nothing in the [T, ...] outputs of the other tokens either.
  bool tokens_ignore_trailing = false;

  // The lengths of requests that the model has tables for; 0: no limit.
  int64_t min_length = 1;
  int64_t max_length = 0;

  // For `inspect`: what was done, in words, and the passes that ran before.
  std::vector<std::string> notes;
  std::vector<PassReport> passes;
};

// `graph` as imported, shapes inferred. Unimplemented names the node that stands in the way, and
// why.
StatusOr<RaggedModel> MakeRagged(const Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_RAGGED_RAGGED_H_
