// The number of multiply-adds of products and convolutions, for OperatorDef::multiply_adds.
#ifndef CHAIRLIFT_OPS_MULTIPLY_ADDS_H_
#define CHAIRLIFT_OPS_MULTIPLY_ADDS_H_

#include <span>

#include "ops/operator.h"

namespace chairlift {

// For a product whose rows of A have `k` elements.
inline double ProductMultiplyAdds(const TensorDesc& y, int64_t k) {
  return static_cast<double>(y.size()) * static_cast<double>(k);
}

// For a convolution: each element of `one` (the output; the input if the convolution is transposed)
// is multiplied with W's elements, without the common axis 0.
inline double ConvolutionMultiplyAdds(const TensorDesc& one, const TensorDesc& w) {
  return static_cast<double>(one.size()) *
         static_cast<double>(w.shape.NumElements(1, w.shape.rank()));
}

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_MULTIPLY_ADDS_H_
