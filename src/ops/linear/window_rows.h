// The windows of a convolution over blocked channels, traversed along the rows of its outputs: the
// common part of depthwise.h, dilated.h, few_outputs.h and grouped.h.
#ifndef CHAIRLIFT_OPS_LINEAR_WINDOW_ROWS_H_
#define CHAIRLIFT_OPS_LINEAR_WINDOW_ROWS_H_

#include <algorithm>
#include <cstdint>

namespace chairlift {

struct Convolution;

// Two spatial axes; if there is only one, the first is 1.
struct WindowRows {
  struct Axis {
    int64_t in = 1, out = 1, taps = 1, stride = 1, dilation = 1, pad = 0;
    // The number of inputs under `count` adjacent outputs: from the first tap of the first output
    // to the last tap of the last one.
    int64_t Reach(int64_t count) const { return (count - 1) * stride + (taps - 1) * dilation + 1; }
  };
  int block = 16;  // channels per block
  Axis y, x;

  static WindowRows Of(const Convolution& convolution);

  static constexpr int kMaxOutputs = 8;  // adjacent outputs that are summed together

  int64_t Taps() const { return y.taps * x.taps; }
  int64_t InPlane() const { return y.in * x.in * block; }  // floats of a block of channels
  // Floats for a copy of the inputs of up to kMaxOutputs outputs in each of `rows` rows, with zeros
  // outside the image.
  int64_t EdgeFloats(int64_t rows) const {
    return x.Reach(std::min<int64_t>(kMaxOutputs, x.out)) * std::min(y.Reach(rows), y.in) * block;
  }
  // Whether a copy of that size is acceptable: false if strides or dilations are extremely large.
  bool EdgesFit(int64_t rows) const { return EdgeFloats(rows) <= int64_t{1} << 20; }
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_WINDOW_ROWS_H_
