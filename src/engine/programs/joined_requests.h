// Joins requests for one run of an executable, and distributes its outputs to them.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_JOINED_REQUESTS_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_JOINED_REQUESTS_H_

#include <cstddef>
#include <span>
#include <vector>

#include "engine/requests/validate.h"
#include "runtime/executable.h"

namespace chairlift {

// Requests of one task, in the order of their rows; they must outlive the users of the span.
using RequestSpan = std::span<const ValidatedRequest* const>;

class JoinedRequests {
 public:
  virtual ~JoinedRequests() = default;

  // The executable's inputs; new tensors are in `staging`, valid until that is used again.
  virtual StatusOr<std::vector<Tensor>> Inputs(Arena& staging) const = 0;
  // The requested outputs of request i, in its order, from the executable's outputs; they may share
  // bytes. kInternal if the shapes do not fit such a batch.
  virtual StatusOr<std::vector<NamedTensor>> Outputs(size_t i,
                                                     std::span<const Tensor> outputs) const = 0;
};

// A single request, whose tensors are not copied. `inputs`: the model's inputs that the executable
// takes, in its order; empty: all.
class LoneRequest final : public JoinedRequests {
 public:
  LoneRequest(const Signature& signature, std::span<const int> inputs,
              const ValidatedRequest& request)
      : signature_(signature), inputs_(inputs), request_(request) {}

  StatusOr<std::vector<Tensor>> Inputs(Arena& staging) const override;
  StatusOr<std::vector<NamedTensor>> Outputs(size_t i,
                                             std::span<const Tensor> outputs) const override;

 private:
  const Signature& signature_;
  const std::span<const int> inputs_;
  const ValidatedRequest& request_;
};

// Requests with equal keys, one after the other along the batch (ValidatedRequest::axes).
class RowsTogether final : public JoinedRequests {
 public:
  RowsTogether(const Signature& signature, std::span<const int> inputs, RequestSpan requests);

  StatusOr<std::vector<Tensor>> Inputs(Arena& staging) const override;
  StatusOr<std::vector<NamedTensor>> Outputs(size_t i,
                                             std::span<const Tensor> outputs) const override;

 private:
  size_t num_inputs() const { return inputs_.empty() ? signature_.inputs.size() : inputs_.size(); }
  size_t input(size_t i) const { return inputs_.empty() ? i : static_cast<size_t>(inputs_[i]); }

  const Signature& signature_;
  const std::span<const int> inputs_;
  const RequestSpan requests_;
  int64_t rows_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_JOINED_REQUESTS_H_
