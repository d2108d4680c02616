// Convolutions of 8-bit tensors, bound to shapes: their description, their kernel, and its loops.
//
// All computation is channels-last: the channels of one position are adjacent bytes. Sums are exact
// modulo 2³², so every method gives the same bits.
#ifndef CHAIRLIFT_OPS_QUANTIZATION_BYTE_CONV_H_
#define CHAIRLIFT_OPS_QUANTIZATION_BYTE_CONV_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/operator.h"
#include "ops/window.h"

namespace chairlift {

// The input numbers of an operator's operands; −1 if it has no such operand.
struct ByteConvInputs {
  int x = 0, w = 1, x_zero = 2, w_zero = 3;
  int x_scale = -1, w_scale = -1, y_scale = -1, y_zero = -1, bias = -1;

  bool quantizes() const { return y_scale >= 0; }
};

// The zero point of results, and the bounds that they are clamped to.
struct ByteRange {
  int32_t zero = 0, low = 0, high = 0;
  bool is_signed = false;
};

// Y = X ∗ W in integers. X: [batch, in..., channels] if channels_last, else [batch, channels,
// in...]; Y likewise. W: [out_channels, channels / groups, kernel...].
struct ByteConv {
  ByteConvInputs at;
  int64_t batch = 0, channels = 0, out_channels = 0, groups = 1;
  std::vector<int64_t> in, out, pads;
  Window window;
  bool channels_last = false;
  bool x_signed = false, w_signed = false, y_signed = false;
  // Bounds on the results that a fused activation adds.
  int32_t low = INT32_MIN, high = INT32_MAX;

  int64_t group_channels() const { return channels / groups; }
  int64_t group_outputs() const { return out_channels / groups; }
  int64_t Taps() const { return Product(window.kernel); }
  int64_t K() const { return group_channels() * Taps(); }  // terms of a sum
  int64_t InSize() const { return Product(in); }
  int64_t OutSize() const { return Product(out); }
  bool Depthwise() const {
    return group_channels() == 1 && group_outputs() == 1 && window.rank() <= 2;
  }

 private:
  static int64_t Product(const std::vector<int64_t>& dims) {
    int64_t product = 1;
    for (const int64_t d : dims) product *= d;
    return product;
  }
};

StatusOr<std::unique_ptr<Kernel>> CompileByteConv(const ByteConv& conv,
                                                  const CompileContext& context);

// y[r, c] = saturate(round((sums[r, c] + start[c]) · scale[c]) + zero), ties to even, within the
// range. The sum is modulo 2³². Strides are in elements.
void SumsToBytes(const ByteRange& range, const int32_t* sums, int64_t rows, int64_t channels,
                 int64_t sums_stride, const int32_t* start, const float* scale, uint8_t* y,
                 int64_t y_stride);

// The window of one output of a depthwise convolution, in bytes of a padded input.
struct DepthwiseTaps {
  int64_t channels = 0;
  int64_t rows = 0, columns = 0;            // taps
  int64_t row_bytes = 0, column_bytes = 0;  // from one tap to the next
  int64_t step_bytes = 0;                   // from one output to the next
};

// sums[i, c] = Σ over taps of x · w[tap, c] for `count` adjacent outputs. `w` has 16-bit weights
// zero-extended to 32 bits.
void DepthwiseSums(const DepthwiseTaps& taps, const uint8_t* x, const int32_t* w, int64_t count,
                   int32_t* sums);

// The same with AVX-512 VNNI, if the machine has it and there are enough channels
// (HasDepthwiseVnni()). PackDepthwiseVnni() packs int8 weights [channels, taps] into
// DepthwiseVnniBytes() bytes.
bool HasDepthwiseVnni(int64_t channels);
int64_t DepthwiseVnniBytes(const DepthwiseTaps& taps);
void PackDepthwiseVnni(const DepthwiseTaps& taps, const int8_t* w, int8_t* to);
void DepthwiseSumsVnni(const DepthwiseTaps& taps, const uint8_t* x, const int8_t* w, int64_t count,
                       int32_t* sums);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_QUANTIZATION_BYTE_CONV_H_
