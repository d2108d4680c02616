// Winograd convolution F(4×4, 3×3) on channel-blocked activations: 4×4 outputs with 36
// multiplications where the direct sum needs 144 (Lavin and Gray, CVPR 2016, §4).
//
// Per tile and channel, V = Bᵀ d B of the 6×6 input patch. Per point ξ of 36, Z[ξ] = V[ξ] · U[ξ], a
// matrix product over channels. Per tile and output channel, Y = Aᵀ Z A. The interpolation points
// differ from the paper: 0, ±5/8, ±3/2, ∞ instead of 0, ±1, ±2, ∞. They reduce the error from 2e-5
// of the output's range at 1024 channels to 5e-6.
//
// There are batch · ceil(out_height / 4) · ceil(out_width / 4) tiles, images outermost, then rows.
#ifndef CHAIRLIFT_OPS_LINEAR_WINOGRAD_H_
#define CHAIRLIFT_OPS_LINEAR_WINOGRAD_H_

#include <cstdint>
#include <memory>

#include "ops/linear/convolution.h"

namespace chairlift {

inline constexpr int64_t kWinogradPoints = 36;

// The sizes of one convolution, and its epilogue.
struct WinogradGeometry {
  int64_t channels = 0, out_channels = 0;  // stored: multiples of ChannelBlock()
  int64_t filters = 0;                     // of out_channels; the others are zero
  int64_t height = 0, width = 0, out_height = 0, out_width = 0;
  int64_t pad_top = 0, pad_left = 0;
  int64_t tiles_y = 0, tiles_x = 0;
  Activation activation;

  // Floats from one tile to the next in V: padded, so that tiles do not share a cache set.
  int64_t TileStride() const { return channels + 16; }
};

// V of tiles [first, first + count): point ξ of tile i and channel c at
// v[(ξ · capacity + i − first) · TileStride() + c].
void WinogradTransformInput(const WinogradGeometry& g, const float* x, int64_t first, int64_t count,
                            int64_t capacity, float* v);

// Y of tiles [first, first + count) and output panels [panel_begin, panel_end) of kGemmPanel
// channels from V as above (tile `first` at v) and U: point ξ, channel c, output o of panel p at
// u[((p · 36 + ξ) · channels + c) · kGemmPanel + o]. `z` is scratch of 36 · count · kGemmPanel
// floats. `bias` (whole panels) and `residual` (as y) may be null.
struct WinogradOperands {
  const float* v;
  int64_t capacity;
  const float* u;
  const float* bias;
  const float* residual;
  float* y;
  float* z;
};
void WinogradMultiply(const WinogradGeometry& g, const WinogradOperands& operands, int64_t first,
                      int64_t count, int64_t panel_begin, int64_t panel_end);

// kUnimplemented, with the reason, if another implementation is better or this one does not support
// the case.
StatusOr<std::unique_ptr<Kernel>> CompileWinogradConvolution(const Convolution& convolution,
                                                             const CompileContext& context);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_WINOGRAD_H_
