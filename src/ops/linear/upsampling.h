// Transposed convolutions whose windows do not overlap (kernel = stride), on blocked channels. Each
// tap is a matrix product over channels, whose results go to separate output pixels.
#ifndef CHAIRLIFT_OPS_LINEAR_UPSAMPLING_H_
#define CHAIRLIFT_OPS_LINEAR_UPSAMPLING_H_

#include <cstdint>

#include "ops/linear/packed_gemm.h"

namespace chairlift {

// Inputs [channels / block, height, width, block], outputs likewise or row-major. Output pixel (y ·
// factor_y + i, x · factor_x + j) comes from input pixel (y, x) and tap (i, j).
struct Upsampling {
  int block = 16;
  int64_t channels = 0, out_channels = 0;
  int64_t height = 0, width = 0, factor_y = 1, factor_x = 1;
  bool blocked_out = true;
  Activation activation;

  int64_t Taps() const { return factor_y * factor_x; }
  int64_t Panels() const {
    return blocked_out ? GemmPanels(out_channels) * Taps() : GemmPanels(out_channels * Taps());
  }
  int64_t InImage() const { return channels * height * width; }
  int64_t OutImage() const { return out_channels * height * width * Taps(); }
  // Floats of scratch memory for `pixels` pixels: their channels together, and one panel of
  // results.
  int64_t ScratchFloats(int64_t pixels) const {
    return pixels * (channels + kPixelPad + kGemmPanel);
  }
  // Padding in floats after a pixel's channels there, so that pixels do not share a cache set.
  static constexpr int64_t kPixelPad = 16;
};

// Computes the outputs of input pixels [first, first + pixels) of one image, for panels
// [panel_begin, panel_end) of Panels(). If outputs are blocked, each tap has its own panels;
// otherwise the panels are those of one matrix [channels, out_channels · taps]. `packed` holds them
// as in packed_gemm.h. `bias` may be null.
void UpsamplePixels(const Upsampling& shape, const float* x, int64_t first, int64_t pixels,
                    const float* packed, int64_t panel_begin, int64_t panel_end, const float* bias,
                    float* y, float* scratch);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_UPSAMPLING_H_
