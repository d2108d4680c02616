// Room for the inputs of one batch in a worker's memory.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_STAGING_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_STAGING_H_

#include <span>
#include <vector>

#include "chairlift/tensor.h"
#include "ops/operator.h"
#include "runtime/executable.h"

namespace chairlift {

// Tensors of these types and shapes, unset, valid until `staging` is used again. InvalidArgument
// where a shape is too large, ResourceExhausted where there is no memory.
StatusOr<std::vector<Tensor>> Stage(std::span<const TensorDesc> descs, Arena& staging);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_STAGING_H_
