// Converts a model over [batch, length] inputs to one over packed tokens, without padding inside.
// This file has the proof that the conversion is correct, and the rewrite.
//
// A batch of the packed model is any set of requests. The tokens of all their sequences are
// concatenated: T tokens of R sequences. A request of shape [batch, length] brings `batch`
// sequences of `length` tokens each. Every answer is what the model computes for that request
// alone, whatever the rest of the batch is. The proof goes operator by operator. It fails at an
// operator that is not known to treat tokens independently (or sequences, if a ragged operator
// implements it).
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
  kOffsets,  // int64 [R+1]: the first token of each sequence, then the end of the last. Ascending
             // from 0, at most T. Tokens added to round up T belong to no sequence; sequences added
             // to round up R are empty.
  kPositions,  // int64 [T]: the token's position in its sequence, as in the request
  kRequests,   // int64 [R+1]: the first sequence of each request, then the number of sequences that
               // requests have, up to the end
};

struct RaggedInput {
  RaggedRole role = RaggedRole::kTokens;
  int source = -1;  // for kTokens and kRows: the index of the original graph's input
};

struct RaggedModel {
  // Its inputs are those of `inputs`, in order, each at most once and only if it is read; its
  // outputs are the original's. The fusing passes have not run yet.
  Graph graph;
  std::vector<RaggedInput> inputs;
  std::vector<bool> output_is_tokens;  // by output: [T, ...] or [R, ...]

  // Original inputs of [batch, length]. `marks` must be 0 and 1 for the proof to hold. No query may
  // be left without a key: the first token of each sequence must have 1 in `first_marks`, and all
  // tokens in `all_marks`.
  std::vector<int> marks, first_marks, all_marks;
  // The original input that marks the tokens that count (0: hidden); -1: none is known. The next
  // two say which hidden tokens may be left out of the packing if no [T, ...] output is requested.
  // The others keep their positions. A sequence without a token that counts keeps all of its
  // tokens.
  int mask = -1;
  bool rows_ignore_masked = false;    // all of them
  bool rows_ignore_trailing = false;  // those after the last valid token
  // Whether leaving these out also does not change the [T, ...] outputs of the other tokens.
  bool tokens_ignore_trailing = false;

  // The lengths of requests that the model's tables cover; 0: no limit.
  int64_t min_length = 1;
  int64_t max_length = 0;

  // For `inspect`: a description of the conversion, and the passes that ran before.
  std::vector<std::string> notes;
  std::vector<PassReport> passes;
};

// `graph` as imported, with inferred shapes. Unimplemented names the node that prevents the
// conversion, and the reason.
StatusOr<RaggedModel> MakeRagged(const Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_RAGGED_RAGGED_H_
