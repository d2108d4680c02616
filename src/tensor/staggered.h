// Memory of tensors that are filled together, each from its front on.
#ifndef CHAIRLIFT_TENSOR_STAGGERED_H_
#define CHAIRLIFT_TENSOR_STAGGERED_H_

#include <span>
#include <vector>

#include "chairlift/tensor.h"

namespace chairlift {

// Tensors of these shapes, as Tensor::Allocate() gives them. Where they are large, they are parts
// of one piece of memory, and no two begin at the same place in a huge page: the system clears
// such a page when it is first written to, which takes a millisecond or more, and tensors that are
// filled at the same rate would else all need their next one at the same moment.
std::vector<Tensor> AllocateStaggered(DType dtype, std::span<const Shape> shapes);

}  // namespace chairlift

#endif  // CHAIRLIFT_TENSOR_STAGGERED_H_
