// Convolutions of stride 1 with most taps outside the image. Wide dilations on small feature maps
// cause this (Chen et al., "Rethinking Atrous Convolution", 2017, §3.1). For each tap, the product
// over channels is computed only for the pixels that the tap meets.
#ifndef CHAIRLIFT_OPS_LINEAR_DILATED_H_
#define CHAIRLIFT_OPS_LINEAR_DILATED_H_

#include <algorithm>
#include <cstdint>

#include "ops/linear/activation.h"
#include "ops/linear/packed_gemm.h"
#include "ops/linear/window_rows.h"

namespace chairlift {

struct Dilated {
  WindowRows rows;
  int64_t channels = 0, out_channels = 0;
  Activation activation;

  int64_t Blocks() const { return (channels + rows.block - 1) / rows.block; }
  int64_t Pixels() const { return rows.y.in * rows.x.in; }
  // Floats from one pixel to the next, padded so that pixels do not share a cache set.
  int64_t PixelStride() const { return Blocks() * rows.block + 16; }
  int64_t OutPlane() const { return rows.y.out * rows.x.out * rows.block; }  // floats of a block
  // Output rows whose sums for one panel stay in the second-level cache.
  int64_t RowsAtOnce() const {
    constexpr int64_t kPixels = 1024;
    return std::clamp<int64_t>(kPixels / rows.x.out, 1, rows.y.out);
  }
  int64_t SumFloats() const { return RowsAtOnce() * rows.x.out * kGemmPanel; }
};

// Copies pixels [first, last) of an image `x`, each with its channels together, to `pixels`.
void GatherPixels(const Dilated& shape, const float* x, int64_t first, int64_t last, float* pixels);

// Output rows [first, last), at most RowsAtOnce(), of panel `panel`. `packed`: panels of all taps,
// grouped by tap. `bias` (whole panels), and `residual` in the layout of the image `y`, may be
// null. `sums` has SumFloats().
void DilatedRows(const Dilated& shape, const float* pixels, const float* packed, int64_t panel,
                 const float* bias, const float* residual, int64_t first, int64_t last, float* sums,
                 float* y);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_DILATED_H_
