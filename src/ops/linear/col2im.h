// Transposed convolutions as a matrix product with one row per output channel and tap, and one
// column per input pixel. The elements are then added to their output pixels.
#ifndef CHAIRLIFT_OPS_LINEAR_COL2IM_H_
#define CHAIRLIFT_OPS_LINEAR_COL2IM_H_

#include <cstdint>

#include "ops/linear/activation.h"

namespace chairlift {

// Along the last axis: tap t of input pixel i is added to output pixel i · stride + t · dilation −
// pad.
struct Col2imRow {
  int64_t out = 0;  // output pixels; those outside [0, out) are dropped
  int64_t taps = 0, stride = 1, dilation = 1, pad = 0;
};

// Adds the products of input pixels [first, first + pixels) and all taps to one output row. The
// product of tap t and pixel first + i is products[t · tap_stride + i].
void AddTaps(const Col2imRow& row, const float* products, int64_t tap_stride, int64_t first,
             int64_t pixels, float* y);

// y[i] = f(y[i]).
void ActivateInPlace(const Activation& activation, float* y, int64_t count);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_COL2IM_H_
