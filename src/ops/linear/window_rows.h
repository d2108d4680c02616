// The windows of a convolution over blocked channels, walked along the rows of its outputs: what
// the kernels for one filter a channel (depthwise.h) and for few outputs (few_outputs.h) have in
// common.
#ifndef CHAIRLIFT_OPS_LINEAR_WINDOW_ROWS_H_
#define CHAIRLIFT_OPS_LINEAR_WINDOW_ROWS_H_

#include <algorithm>
#include <cstdint>

namespace chairlift {

struct Convolution;

// Two spatial axes; where there is one, the first is 1.
struct WindowRows {
  struct Axis {
    int64_t in = 1, out = 1, taps = 1, stride = 1, dilation = 1, pad = 0;
    // Inputs from the first tap of the first of `count` outputs to the last of the last.
    int64_t Reach(int64_t count) const { return (count - 1) * stride + (taps - 1) * dilation + 1; }
  };
  int block = 16;  // channels that lie together
  Axis y, x;

  static WindowRows Of(const Convolution& convolution);

  static constexpr int kMaxOutputs = 8;  // of a row, summed together

  int64_t Taps() const { return y.taps * x.taps; }
  int64_t InPlane() const { return y.in * x.in * block; }  // floats of a block of channels
  // Floats for what some outputs of so many rows read, with zeros for what is outside of the image.
  int64_t EdgeFloats(int64_t rows) const {
    return x.Reach(std::min<int64_t>(kMaxOutputs, x.out)) * std::min(y.Reach(rows), y.in) * block;
  }
  // Whether that may be copied for each: not where strides or dilations are out of all proportion.
  bool EdgesFit(int64_t rows) const { return EdgeFloats(rows) <= int64_t{1} << 20; }
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_WINDOW_ROWS_H_
