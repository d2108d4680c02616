// Requests of sequences as one batch of packed tokens, and its outputs split back. No padding is
// computed, except for a few tokens that round the batch to a shape that was used before.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PACKING_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PACKING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/programs/joined_requests.h"
#include "graph/ragged/ragged.h"
#include "runtime/executable.h"

namespace chairlift {

// Rows for `tokens` tokens: rounded up by at most 3%, so that large batches of similar sizes share
// a plan.
int64_t TokenRoom(int64_t tokens);
// The same for sequences: a power of two.
int64_t SequenceRoom(int64_t sequences);

class Packing final : public JoinedRequests {
 public:
  // The requests fit `signature`, which has `sequences` set. All must outlive this.
  Packing(const Signature& signature, std::span<const RaggedInput> inputs, RequestSpan requests);

  // Inputs of the packed graph, in `staging`. Rows that belong to no sequence are zeros.
  StatusOr<std::vector<Tensor>> Inputs(Arena& staging) const override;
  // The requested outputs of requests[i] from the packed graph's; they share its bytes.
  StatusOr<std::vector<NamedTensor>> Outputs(size_t i,
                                             std::span<const Tensor> outputs) const override;

  // The type and shape of one input in Inputs().
  TensorDesc DescOf(const RaggedInput& input) const;
  void Fill(const RaggedInput& input, Tensor& packed) const;

  // The room in the packed graph's tensors, and where request i begins there.
  int64_t token_room() const { return TokenRoom(first_token_.back()); }
  int64_t sequence_room() const { return SequenceRoom(first_sequence_.back()); }
  int64_t first_token(size_t i) const { return first_token_[i]; }
  int64_t first_sequence(size_t i) const { return first_sequence_[i]; }

 private:
  Shape PackedShape(const RaggedInput& input) const;
  void FillOffsets(int64_t* offsets) const;
  void FillPositions(int64_t* positions) const;
  void FillRequests(int64_t* requests) const;

  const Signature& signature_;
  std::span<const RaggedInput> inputs_;
  RequestSpan requests_;
  std::vector<int64_t> first_token_;     // by request, and past the last
  std::vector<int64_t> first_sequence_;  // likewise
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PACKING_H_
