// Convolutions of blocked channels to a few row-major ones, at the end of networks that produce
// pictures and maps. Each lane of a vector sums its own channels. The lanes are added once per
// pixel and output channel.
#ifndef CHAIRLIFT_OPS_LINEAR_FEW_OUTPUTS_H_
#define CHAIRLIFT_OPS_LINEAR_FEW_OUTPUTS_H_

#include <cstdint>

#include "ops/linear/activation.h"
#include "ops/linear/window_rows.h"

namespace chairlift {

struct FewOutputs {
  WindowRows rows;
  int64_t blocks = 0;  // of the channels
  int64_t out_channels = 0;
  Activation activation;

  int64_t OutPlane() const { return rows.y.out * rows.x.out; }
  // The lane sums of up to kMaxOutputs outputs, and a copy of their inputs in one block.
  int64_t ScratchFloats() const {
    return out_channels * WindowRows::kMaxOutputs * rows.block + rows.EdgeFloats(1);
  }
};

// Rows [first, last) of an image's outputs. `x` is the image, `w` the filters [out_channels,
// blocks, taps, block]; `bias`, and `residual` in the layout of `y`, may be null. `scratch` has
// ScratchFloats().
void FewOutputsRows(const FewOutputs& shape, const float* x, const float* w, const float* bias,
                    const float* residual, int64_t first, int64_t last, float* y, float* scratch);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_FEW_OUTPUTS_H_
