// Depthwise convolutions on blocked channels: each channel has its own filter, of any size.
#ifndef CHAIRLIFT_OPS_LINEAR_DEPTHWISE_H_
#define CHAIRLIFT_OPS_LINEAR_DEPTHWISE_H_

#include <algorithm>
#include <cstdint>

#include "ops/linear/activation.h"
#include "ops/linear/window_rows.h"

namespace chairlift {

struct Depthwise {
  WindowRows rows;
  int64_t blocks = 0;  // per image
  Activation activation;

  int64_t OutPlane() const { return rows.y.out * rows.x.out * rows.block; }  // floats of a block
  // The number of output rows whose inputs fit in the first-level cache.
  int64_t RowsAtOnce() const {
    constexpr int64_t kCachedFloats = 4096;
    return std::max<int64_t>(1, kCachedFloats / (rows.x.in * rows.y.stride * rows.block));
  }
  int64_t ScratchFloats() const { return rows.EdgeFloats(RowsAtOnce()); }
};

// The depthwise convolution `c`, one or two spatial axes.
Depthwise DepthwiseOf(const Convolution& c);

// Computes output rows [first, last) of one block of channels. `x` is its plane of inputs, `w` its
// filters [taps, block], and `bias` its block of biases. Both `residual` and `y` are planes of
// outputs. `bias` and `residual` may be null. `scratch` has ScratchFloats().
void DepthwiseRows(const Depthwise& shape, const float* x, const float* w, const float* bias,
                   const float* residual, int64_t first, int64_t last, float* y, float* scratch);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_DEPTHWISE_H_
