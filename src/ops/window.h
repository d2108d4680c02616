// Sliding windows over spatial axes: the attributes that convolutions and poolings share, the
// output shape, and the padding.
#ifndef CHAIRLIFT_OPS_WINDOW_H_
#define CHAIRLIFT_OPS_WINDOW_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "ops/attributes.h"
#include "tensor/symbolic_shape.h"

namespace chairlift {

enum class AutoPad { kExplicit, kValid, kSameUpper, kSameLower };

// kernel_shape, strides, dilations, pads, auto_pad and ceil_mode of a node, checked: one entry per
// spatial axis; kernel, strides and dilations ≥ 1, pads ≥ 0, none beyond kLimit.
struct Window {
  std::vector<int64_t> kernel;
  std::vector<int64_t> strides;
  std::vector<int64_t> dilations;
  std::vector<int64_t> pads_begin;
  std::vector<int64_t> pads_end;
  AutoPad auto_pad = AutoPad::kExplicit;
  bool ceil_mode = false;

  static constexpr int64_t kLimit = int64_t{1} << 24;

  // `kernel` is the required kernel_shape if the node has one; empty: the node must have one.
  static StatusOr<Window> Parse(const Attributes& attributes, int spatial_rank,
                                std::span<const int64_t> kernel);

  int rank() const { return static_cast<int>(kernel.size()); }
  // Input positions from a window's first element to its last, inclusive.
  int64_t Extent(int axis) const { return (kernel[axis] - 1) * dilations[axis] + 1; }

  // Number of windows along an axis of `in` elements; an error if the padded input is shorter than
  // one.
  StatusOr<int64_t> OutputSize(int axis, int64_t in) const;
  // The same if `in` may be a symbol: the symbol itself if the size is unchanged, else unknown.
  StatusOr<Dim> OutputDim(int axis, const Dim& in) const;
  // Padding before the first element. The padding at the end follows from the output's size.
  int64_t PadBegin(int axis, int64_t in) const;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_WINDOW_H_
