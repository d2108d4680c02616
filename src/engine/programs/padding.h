// Requests of sequences as one batch padded to the longest, and its outputs split back: for models
// that cannot run ragged, and for comparing policies.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PADDING_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PADDING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/programs/joined_requests.h"
#include "runtime/executable.h"

namespace chairlift {

class Padding final : public JoinedRequests {
 public:
  // The requests fit `signature`, which has `sequences` set. All must outlive this.
  Padding(const Signature& signature, RequestSpan requests);

  // Inputs of the model, in `staging`; padding is zeros, which the mask hides.
  StatusOr<std::vector<Tensor>> Inputs(Arena& staging) const override;
  // The requested outputs of requests[i] from the batch's.
  StatusOr<std::vector<NamedTensor>> Outputs(size_t i,
                                             std::span<const Tensor> outputs) const override;

 private:
  const Signature& signature_;
  RequestSpan requests_;
  std::vector<int64_t> first_row_;  // by request, and past the last
  int64_t length_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PADDING_H_
