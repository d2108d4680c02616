#include "engine/programs/packing.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/status.h"
#include "engine/programs/staging.h"

namespace chairlift {
namespace {

int64_t RoundUp(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// Calls run(first, count) for each run of a request's packed tokens; `first` counts the request's
// tokens over all its sequences.
template <typename Run>
void ForRuns(const ValidatedRequest& validated, int64_t tokens, Run run) {
  if (validated.left_out.empty()) return run(int64_t{0}, tokens);
  for (int64_t at = 0; at < tokens;) {
    if (validated.left_out[static_cast<size_t>(at)]) {
      ++at;
      continue;
    }
    const int64_t first = at;
    while (at < tokens && !validated.left_out[static_cast<size_t>(at)]) ++at;
    run(first, at - first);
  }
}

}  // namespace

int64_t TokenRoom(int64_t tokens) {
  const auto octave = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(tokens)));
  return RoundUp(std::max<int64_t>(tokens, 1), std::max<int64_t>(octave / 32, 1));
}

int64_t SequenceRoom(int64_t sequences) {
  return static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(sequences, 1))));
}

Packing::Packing(const Signature& signature, std::span<const RaggedInput> inputs,
                 RequestSpan requests)
    : signature_(signature), inputs_(inputs), requests_(requests) {
  int64_t tokens = 0, sequences = 0;
  for (const ValidatedRequest* request : requests) {
    first_token_.push_back(tokens);
    first_sequence_.push_back(sequences);
    const std::vector<int32_t>& own = request->tokens;
    tokens = std::accumulate(own.begin(), own.end(), tokens);
    sequences += request->rows;
  }
  first_token_.push_back(tokens);
  first_sequence_.push_back(sequences);
}

Shape Packing::PackedShape(const RaggedInput& input) const {
  const int64_t tokens = token_room(), sequences = sequence_room();
  if (input.role == RaggedRole::kOffsets || input.role == RaggedRole::kRequests) {
    return {sequences + 1};
  }
  if (input.role == RaggedRole::kPositions) return {tokens};
  Shape shape = requests_[0]->inputs[static_cast<size_t>(input.source)].shape();
  if (input.role == RaggedRole::kRows) {
    shape[0] = sequences;
    return shape;
  }
  shape.Erase(0);
  shape[0] = tokens;
  return shape;
}

TensorDesc Packing::DescOf(const RaggedInput& input) const {
  const DType dtype =
      input.source < 0 ? DType::kInt64 : signature_.inputs[static_cast<size_t>(input.source)].dtype;
  return {dtype, PackedShape(input)};
}

StatusOr<std::vector<Tensor>> Packing::Inputs(Arena& staging) const {
  std::vector<TensorDesc> descs;
  descs.reserve(inputs_.size());
  for (const RaggedInput& input : inputs_) descs.push_back(DescOf(input));
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> packed, Stage(descs, staging));
  for (size_t i = 0; i < packed.size(); ++i) Fill(inputs_[i], packed[i]);
  return packed;
}

void Packing::Fill(const RaggedInput& input, Tensor& packed) const {
  if (input.role == RaggedRole::kOffsets) return FillOffsets(packed.data<int64_t>());
  if (input.role == RaggedRole::kRequests) return FillRequests(packed.data<int64_t>());
  if (input.role == RaggedRole::kPositions) {
    FillPositions(packed.data<int64_t>());
    return;
  }
  auto* to = static_cast<std::byte*>(packed.raw());
  const std::byte* const end = to + packed.byte_size();
  for (const ValidatedRequest* request : requests_) {
    const Tensor& from = request->inputs[static_cast<size_t>(input.source)];
    if (input.role == RaggedRole::kRows) {
      std::memcpy(to, from.raw(), from.byte_size());
      to += from.byte_size();
      continue;
    }
    const int64_t tokens = from.shape()[0] * from.shape()[1];
    const size_t token_bytes = from.byte_size() / static_cast<size_t>(tokens);
    ForRuns(*request, tokens, [&](int64_t first, int64_t count) {
      const size_t bytes = static_cast<size_t>(count) * token_bytes;
      std::memcpy(
          to, static_cast<const std::byte*>(from.raw()) + static_cast<size_t>(first) * token_bytes,
          bytes);
      to += bytes;
    });
  }
  std::memset(to, 0, static_cast<size_t>(end - to));
}

void Packing::FillOffsets(int64_t* offsets) const {
  int64_t at = 0, sequence = 0;
  offsets[0] = 0;
  for (const ValidatedRequest* request : requests_) {
    for (const int32_t tokens : request->tokens) offsets[++sequence] = at += tokens;
  }
  std::fill(offsets + sequence, offsets + SequenceRoom(sequence) + 1, at);
}

void Packing::FillRequests(int64_t* requests) const {
  int64_t* const end = std::copy(first_sequence_.begin(), first_sequence_.end(), requests);
  std::fill(end, requests + sequence_room() + 1, first_sequence_.back());
}

void Packing::FillPositions(int64_t* positions) const {
  int64_t* to = positions;
  for (const ValidatedRequest* request : requests_) {
    const int64_t length = request->length;
    ForRuns(*request, request->rows * length, [&](int64_t first, int64_t count) {
      for (int64_t at = first; at < first + count; ++at) *to++ = at % length;
    });
  }
  std::fill(to, positions + token_room(), 0);
}

StatusOr<std::vector<NamedTensor>> Packing::Outputs(size_t i,
                                                    std::span<const Tensor> outputs) const {
  const ValidatedRequest& validated = *requests_[i];
  std::vector<NamedTensor> picked;
  for (const int index : validated.outputs) {
    const auto at = static_cast<size_t>(index);
    const bool tokens = signature_.sequences->token_outputs[at];
    const Tensor& output = outputs[at];
    const int64_t room = tokens ? token_room() : sequence_room();
    if (output.shape().rank() == 0 || output.shape()[0] != room) {
      return Internal("output '{}' of a batch of {} has shape {}", signature_.outputs[at].name,
                      room, output.shape().ToString());
    }
    if (!tokens) {
      picked.push_back(
          {signature_.outputs[at].name, output.Rows(first_sequence_[i], validated.rows)});
      continue;
    }
    Shape shape = output.shape();
    shape[0] = validated.length;
    shape.Insert(0, validated.rows);
    const int64_t count = first_token_[i + 1] - first_token_[i];
    picked.push_back(
        {signature_.outputs[at].name, output.Rows(first_token_[i], count).Reshaped(shape)});
  }
  return picked;
}

}  // namespace chairlift
