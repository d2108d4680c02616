// Requests of sequences as one batch of packed tokens, and its outputs back to each: no token is
// computed that nobody asked for, but for a few that round the batch to a shape met before.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PACKING_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PACKING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/programs/joined_requests.h"
#include "graph/ragged/ragged.h"
#include "runtime/executable.h"

namespace chairlift {

// Room for `tokens` rows: rounded up by 3% at most, so that large batches of like sizes share a
// plan.
int64_t TokenRoom(int64_t tokens);
// Room for so many sequences, likewise: a power of two.
int64_t SequenceRoom(int64_t sequences);

class Packing final : public JoinedRequests {
 public:
  // The requests fit `signature`, whose `sequences` are set. All must outlive this.
  Packing(const Signature& signature, std::span<const RaggedInput> inputs, RequestSpan requests);

  // Inputs of the packed graph, in `staging`. Rows of no sequence are zeros.
  StatusOr<std::vector<Tensor>> Inputs(Arena& staging) const override;
  // The outputs that requests[i] wants, out of the packed graph's; they share its bytes.
  StatusOr<std::vector<NamedTensor>> Outputs(size_t i,
                                             std::span<const Tensor> outputs) const override;

  // What Inputs() has of one input.
  TensorDesc DescOf(const RaggedInput& input) const;
  void Fill(const RaggedInput& input, Tensor& packed) const;

  // Room in the packed graph's tensors, and where request i begins there.
  int64_t token_room() const { return TokenRoom(first_token_.back()); }
  int64_t sequence_room() const { return SequenceRoom(first_sequence_.back()); }
  int64_t first_token(size_t i) const { return first_token_[i]; }
  int64_t first_sequence(size_t i) const { return first_sequence_[i]; }

 private:
  Shape PackedShape(const RaggedInput& input) const;
  void FillOffsets(int64_t* offsets) const;
  void FillPositions(int64_t* positions) const;

  const Signature& signature_;
  std::span<const RaggedInput> inputs_;
  RequestSpan requests_;
  std::vector<int64_t> first_token_;     // by request, and past the last
  std::vector<int64_t> first_sequence_;  // likewise
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PACKING_H_
