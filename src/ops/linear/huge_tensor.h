// Tensors for packed weights, on huge pages if the system grants them.
#ifndef CHAIRLIFT_OPS_LINEAR_HUGE_TENSOR_H_
#define CHAIRLIFT_OPS_LINEAR_HUGE_TENSOR_H_

#include "chairlift/tensor.h"

namespace chairlift {

// Like Tensor::Allocate. Useful from about a megabyte up; smaller ones are ordinary tensors.
Tensor HugeTensor(DType dtype, const Shape& shape);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_HUGE_TENSOR_H_
