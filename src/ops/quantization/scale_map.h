// Assigns scales and zero points to the elements of a tensor. A tensor has one for all, one per
// index of an axis, or one per block along an axis.
#ifndef CHAIRLIFT_OPS_QUANTIZATION_SCALE_MAP_H_
#define CHAIRLIFT_OPS_QUANTIZATION_SCALE_MAP_H_

#include <algorithm>
#include <cstdint>

#include "ops/axis_map.h"
#include "ops/operator.h"

namespace chairlift {

// The tensor as [outer, axis, inner]; the scale of (o, a, i) is at
//   o·outer_stride + (a / block)·axis_stride + i·inner_stride.
struct ScaleMap {
  int64_t outer = 1, axis = 1, inner = 1;
  int64_t block = 1;
  int64_t outer_stride = 0, axis_stride = 0, inner_stride = 0;

  static StatusOr<ScaleMap> Make(const Attributes& attributes, const Shape& x, const Shape& scale);

  // Calls run(first element, count, first scale) for all runs of elements with outer index in
  // [first_outer, last_outer). Along a run the scale is constant (inner_stride 0) or advances by 1
  // per element (inner_stride 1).
  template <typename F>
  void ForRuns(int64_t first_outer, int64_t last_outer, F run) const {
    for (int64_t o = first_outer; o < last_outer; ++o) {
      if (inner_stride == 0) {
        // One run per block.
        for (int64_t a = 0; a < axis; a += block) {
          run((o * axis + a) * inner, std::min(block, axis - a) * inner,
              o * outer_stride + a / block * axis_stride);
        }
      } else {
        for (int64_t a = 0; a < axis; ++a) {
          run((o * axis + a) * inner, inner, o * outer_stride + a / block * axis_stride);
        }
      }
    }
  }
};

// Checks shapes and types for QuantizeLinear and DequantizeLinear. The zero point (input 2) must
// have the scale's shape. The scale must fit x, if both are known.
Status CheckScales(const InferContext& context);

// The axis map of both operators. Scales are one for all, or one per index of an axis.
StatusOr<AxisMap> ScaledAxes(const InferContext& context);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_QUANTIZATION_SCALE_MAP_H_
