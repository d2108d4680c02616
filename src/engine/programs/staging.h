// Memory for the inputs of one batch from a worker's arena.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_STAGING_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_STAGING_H_

#include <span>
#include <vector>

#include "chairlift/tensor.h"
#include "ops/operator.h"
#include "runtime/executable.h"

namespace chairlift {

// Uninitialised tensors of these types and shapes, valid until `staging` is used again.
// InvalidArgument if a shape is too large, ResourceExhausted if there is no memory.
StatusOr<std::vector<Tensor>> Stage(std::span<const TensorDesc> descs, Arena& staging);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_STAGING_H_
