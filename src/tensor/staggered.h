// Memory for tensors that are filled at the same time, each from front to back.
#ifndef CHAIRLIFT_TENSOR_STAGGERED_H_
#define CHAIRLIFT_TENSOR_STAGGERED_H_

#include <span>
#include <vector>

#include "chairlift/tensor.h"

namespace chairlift {

// Tensors of these shapes, as from Tensor::Allocate(). Large ones are parts of one block of memory,
// and no two start at the same offset in a huge page. The system clears a huge page when it is
// first written to, which takes a millisecond or more. Tensors that are filled at the same rate
// would otherwise all need their next page at the same moment.
std::vector<Tensor> AllocateStaggered(DType dtype, std::span<const Shape> shapes);

}  // namespace chairlift

#endif  // CHAIRLIFT_TENSOR_STAGGERED_H_
