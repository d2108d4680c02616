// What a model takes and gives, and whether a request fits it.
#ifndef CHAIRLIFT_ENGINE_SIGNATURE_H_
#define CHAIRLIFT_ENGINE_SIGNATURE_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "chairlift/engine.h"
#include "runtime/executable.h"

namespace chairlift {

struct Signature {
  std::vector<SymbolicSpec> inputs;
  std::vector<SymbolicSpec> outputs;
  // Requests share batches: dimension 0 of every input and output is the batch.
  bool batches = false;
  // Rows one request may bring; 0: any number.
  int max_rows = 0;
};

// What two requests must have in common to share a batch: ranks and dimensions of all inputs, the
// batch dimension left out.
using ShapeKey = absl::InlinedVector<int64_t, 8>;

// A request that fits: inputs and wanted outputs in the signature's order.
struct FittingRequest {
  std::vector<Tensor> inputs;
  std::vector<int> outputs;  // indices into Signature::outputs, as the request listed them
  int32_t rows = 1;          // 1 where the model does not batch
  ShapeKey key;              // empty where the model does not batch
};

// InvalidArgument says which tensor is wrong, in what, and what would be right.
StatusOr<FittingRequest> Fit(const Signature& signature, const InferRequest& request);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_SIGNATURE_H_
