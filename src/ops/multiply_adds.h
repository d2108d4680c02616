// How many multiply-adds products and convolutions take, for OperatorDef::multiply_adds.
#ifndef CHAIRLIFT_OPS_MULTIPLY_ADDS_H_
#define CHAIRLIFT_OPS_MULTIPLY_ADDS_H_

#include <span>

#include "ops/operator.h"

namespace chairlift {

// Of a product whose rows of A have `k` elements.
inline double ProductMultiplyAdds(const TensorDesc& y, int64_t k) {
  return static_cast<double>(y.size()) * static_cast<double>(k);
}

// Of a convolution: each element of `one` (the output; where the convolution is transposed, the
// input) meets W's elements, but for the axis 0 that it has in common with them.
inline double ConvolutionMultiplyAdds(const TensorDesc& one, const TensorDesc& w) {
  return static_cast<double>(one.size()) *
         static_cast<double>(w.shape.NumElements(1, w.shape.rank()));
}

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_MULTIPLY_ADDS_H_
