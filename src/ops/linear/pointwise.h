// Convolutions of one tap on blocked channels: at each pixel, a product over the channels without
// the padding of the last block. If there are several groups, each must be whole blocks. Then
// "image" means one group of an image.
#ifndef CHAIRLIFT_OPS_LINEAR_POINTWISE_H_
#define CHAIRLIFT_OPS_LINEAR_POINTWISE_H_

#include <algorithm>
#include <cstdint>

#include "ops/linear/activation.h"

namespace chairlift {

struct Pointwise {
  int block = 16;  // channels per block
  int64_t channels = 0, out_channels = 0;
  int64_t in_pixels = 0;               // per image
  int64_t rows = 1, row_pixels = 0;    // of an image's outputs
  int64_t row_stride = 0, stride = 1;  // in pixels of the input, between adjacent outputs
  Activation activation;

  int64_t InBlocks() const { return (channels + block - 1) / block; }
  int64_t OutBlocks() const { return (out_channels + block - 1) / block; }
  int64_t OutPixels() const { return rows * row_pixels; }
  int64_t InImage() const { return InBlocks() * block * in_pixels; }  // floats
  int64_t OutImage() const { return OutBlocks() * block * OutPixels(); }
  // Pixels of a row whose inputs stay in the second-level cache while all outputs read them.
  int64_t PixelsAtOnce() const {
    constexpr int64_t kInputFloats = 32 * 1024, kFew = 64;
    return std::min(row_pixels, std::max(kFew, kInputFloats / channels));
  }
  int64_t ScaledFloats() const { return InBlocks() * block * PixelsAtOnce(); }
};

// Pixels [first, last) of an image's outputs, numbered row after row, and their channels in blocks
// [first_block, last_block). `x` is the image, `w` the weights [out blocks, channels, block],
// `bias` has one entry per output in whole blocks. `residual`, in the layout of the image `y`, may
// be null. `scale`, one factor per input in whole blocks, may be null; otherwise `scaled` has
// ScaledFloats().
void PointwisePixels(const Pointwise& shape, const float* x, const float* w, const float* bias,
                     const float* residual, const float* scale, int64_t first, int64_t last,
                     int64_t first_block, int64_t last_block, float* y, float* scaled);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_POINTWISE_H_
