// Which input values of a model are indices into tensors of known size, so that an error can
// explain values out of range.
#ifndef CHAIRLIFT_ENGINE_REQUESTS_INDEX_BOUNDS_H_
#define CHAIRLIFT_ENGINE_REQUESTS_INDEX_BOUNDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/requests/validate.h"
#include "graph/ir.h"

namespace chairlift {

// Every element of `input` must be in [−bound, bound).
struct IndexBound {
  std::string input;
  int64_t bound = 0;
  std::string indexed;  // "axis 0 of 'embeddings', of shape [30522,384]"
};

// For inputs that a Gather reads directly, or through nodes that keep every element.
std::vector<IndexBound> FindIndexBounds(const Graph& graph);

// InvalidArgument has the first element of the request outside its bound. Elements of tokens that
// are left out are not checked.
Status CheckIndexBounds(const Signature& signature, const std::vector<IndexBound>& bounds,
                        const ValidatedRequest& request);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUESTS_INDEX_BOUNDS_H_
