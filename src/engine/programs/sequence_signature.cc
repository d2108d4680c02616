#include "engine/programs/sequence_signature.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/programs/loading_model.h"

namespace chairlift {

SequenceSignature SequencesOf(const RaggedModel& ragged, size_t num_inputs) {
  SequenceSignature sequences;
  sequences.token_inputs.assign(num_inputs, false);
  for (const RaggedInput& input : ragged.inputs) {
    if (input.role == RaggedRole::kTokens) {
      sequences.token_inputs[static_cast<size_t>(input.source)] = true;
    }
  }
  if (ragged.mask >= 0) sequences.token_inputs[static_cast<size_t>(ragged.mask)] = true;
  for (const int input : ragged.marks) sequences.token_inputs[static_cast<size_t>(input)] = true;
  sequences.token_outputs = ragged.output_is_tokens;
  sequences.mask = ragged.mask;
  sequences.marks = ragged.marks;
  sequences.first_marks = ragged.first_marks;
  sequences.all_marks = ragged.all_marks;
  sequences.sequences_ignore_masked = ragged.rows_ignore_masked;
  sequences.sequences_ignore_trailing = ragged.rows_ignore_trailing;
  sequences.min_length = std::max<int64_t>(ragged.min_length, 1);
  sequences.max_length = ragged.max_length;
  return sequences;
}

Signature PackedSignature(const RaggedModel& ragged, const Graph& original, int max_rows) {
  Signature signature = SignatureOf(original);
  signature.sequences = SequencesOf(ragged, signature.inputs.size());
  signature.batches = true;
  signature.max_rows = max_rows;
  return signature;
}

bool SequencesAreApart(std::span<const RaggedInput> inputs) {
  return std::none_of(inputs.begin(), inputs.end(),
                      [](const RaggedInput& input) { return input.role == RaggedRole::kRequests; });
}

ValidatedRequest OnesRequest(const Signature& signature, int32_t rows, int32_t length) {
  ValidatedRequest request;
  request.rows = rows;
  request.length = length;
  if (!signature.sequences->padded) {
    request.tokens.assign(static_cast<size_t>(rows), length);
    request.num_tokens = rows * length;
  }
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const SymbolicSpec& spec = signature.inputs[i];
    Shape shape = {rows};
    for (int axis = 1; axis < spec.shape.rank(); ++axis) {
      const Dim& dim = spec.shape[axis];
      const bool tokens = axis == 1 && signature.sequences->token_inputs[i];
      shape.Append(tokens ? length : dim.known() ? dim.value() : 1);
    }
    Tensor ones = Tensor::Allocate(spec.dtype, shape);
    std::memset(ones.raw(), 0, ones.byte_size());
    if (spec.dtype == DType::kInt64) std::fill_n(ones.data<int64_t>(), ones.size(), 1);
    if (spec.dtype == DType::kInt32) std::fill_n(ones.data<int32_t>(), ones.size(), 1);
    if (spec.dtype == DType::kBool) std::fill_n(ones.data<bool>(), ones.size(), true);
    if (spec.dtype == DType::kFloat) std::fill_n(ones.data<float>(), ones.size(), 1.0f);
    request.inputs.push_back(std::move(ones));
  }
  return request;
}

}  // namespace chairlift
