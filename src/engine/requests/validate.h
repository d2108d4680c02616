// The inputs and outputs of a model, and whether a request fits them.
#ifndef CHAIRLIFT_ENGINE_REQUESTS_VALIDATE_H_
#define CHAIRLIFT_ENGINE_REQUESTS_VALIDATE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "chairlift/engine.h"
#include "runtime/executable.h"

namespace chairlift {

// For a model with sequences of any length: the form of requests that share batches, as packed
// tokens (graph/ragged/ragged.h) or padded to the longest.
struct SequenceSignature {
  bool padded = false;
  std::vector<bool> token_inputs;  // by input: [sequences, length, …]; others are [sequences, …]
  std::vector<bool> token_outputs;  // by output, likewise
  int mask = -1;                    // the input that marks with 1 the tokens that count; −1: none
  std::vector<int> marks;           // inputs of 0 and 1 only, as `mask` is; others run alone
  // Likewise, those of which the first token of each sequence has 1, or all tokens have.
  std::vector<int> first_marks, all_marks;
  // Whether tokens that do not count change nothing in outputs of sequences: all of them, or those
  // behind a sequence's last one that counts.
  bool sequences_ignore_masked = false;
  bool sequences_ignore_trailing = false;
  int64_t min_length = 1;
  int64_t max_length = 0;  // 0: any
};

struct Signature {
  std::vector<SymbolicSpec> inputs;
  std::vector<SymbolicSpec> outputs;
  // Requests share batches: dimension 0 of every input and output is the batch.
  bool batches = false;
  // Maximum rows of one request; 0: no limit.
  int max_rows = 0;
  std::optional<SequenceSignature> sequences = {};
  // Rows may have results of lengths that no input has: within one request all must be the same.
  bool own_lengths = false;
};

// What two requests must have in common to share a batch: ranks and dimensions of all inputs,
// without the batch dimension.
using ShapeKey = absl::InlinedVector<int64_t, 8>;

// The batch axes of a model's tensors, if they are not dimension 0 of each.
struct BatchAxes {
  virtual ~BatchAxes() = default;  // programs may derive from it

  std::vector<int> inputs;   // by input; −1: a single number, equal for all requests
  std::vector<int> outputs;  // by output
};

// A valid request: inputs and requested outputs in the signature's order.
struct ValidatedRequest {
  std::vector<Tensor> inputs;
  std::vector<int> outputs;  // indices into Signature::outputs, in the request's order
  int32_t rows = 1;          // 1 if the model does not batch
  ShapeKey key;              // empty if the model does not batch, or has sequences
  // It does not fit what shares batches, and runs through the imported model.
  bool runs_alone = false;

  // For a model with sequences:
  int64_t length = 0;  // of every sequence, as in the request
  // Packed:
  std::vector<int32_t> tokens;  // by sequence: number of computed tokens
  std::vector<bool> left_out;   // [rows · length], the others; empty: none
  int32_t num_tokens = 0;       // computed, over all sequences

  // Null: dimension 0 of every tensor.
  std::shared_ptr<const BatchAxes> axes;
  int input_axis(size_t input) const { return axes == nullptr ? 0 : axes->inputs[input]; }
  int output_axis(int output) const {
    return axes == nullptr ? 0 : axes->outputs[static_cast<size_t>(output)];
  }

  // `seed`: for a model whose requests make others, the seed that theirs derive from. `draw`: a
  // number that the answer depends on in addition to the inputs; absent: there is none.
  std::optional<int64_t> seed;
  std::optional<int64_t> draw;

  // Rows or tokens that it counts as, if more than it contains: because it cannot share a batch, or
  // because it runs alone.
  int32_t room = 0;

  // What it adds to a batch, as its scheduler counts.
  int32_t load() const { return tokens.empty() ? std::max(rows, room) : num_tokens; }
};

// InvalidArgument says which tensor is wrong, what is wrong, and what would be correct. Only
// requests that the model itself does not support are refused.
StatusOr<ValidatedRequest> Validate(const Signature& signature, const InferRequest& request);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUESTS_VALIDATE_H_
