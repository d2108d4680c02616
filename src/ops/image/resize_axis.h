// One axis of a Resize: which input elements each output element is computed from.
#ifndef CHAIRLIFT_OPS_IMAGE_RESIZE_AXIS_H_
#define CHAIRLIFT_OPS_IMAGE_RESIZE_AXIS_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "ops/attributes.h"

namespace chairlift {

struct ResizeOptions {
  enum class Mode { kNearest, kLinear, kCubic };
  enum class Transform {
    kHalfPixel,
    kHalfPixelSymmetric,
    kPytorchHalfPixel,
    kAlignCorners,
    kAsymmetric,
    kTfCropAndResize,
    kTfHalfPixelForNn,  // only opset 11
  };
  enum class Nearest { kRoundPreferFloor, kRoundPreferCeil, kFloor, kCeil };
  enum class Policy { kStretch, kNotLarger, kNotSmaller };

  Mode mode = Mode::kNearest;
  Transform transform = Transform::kHalfPixel;
  Nearest nearest = Nearest::kRoundPreferFloor;
  Policy policy = Policy::kStretch;
  float cubic_coeff_a = -0.75f;
  float extrapolation_value = 0;
  bool antialias = false;
  bool exclude_outside = false;

  static StatusOr<ResizeOptions> Parse(const Attributes& attributes);
};

// Output element o is Σ_k weight[k·out + o] × input[index[k·out + o]] over `taps` k, or the
// extrapolation value if outside[o].
struct ResizeAxis {
  int64_t in = 1;
  int64_t out = 1;
  int taps = 1;
  std::vector<int32_t> index;
  std::vector<double> weight;
  std::vector<uint8_t> outside;  // empty: no element is outside
  bool identity = false;         // output element o is input element o
};

// `scale` is output over input as given by the node; in and out are at most 2³¹ − 1. The region of
// interest [roi_start, roi_end], in units of the axis, is only for kTfCropAndResize.
ResizeAxis MakeResizeAxis(const ResizeOptions& options, int64_t in, int64_t out, float scale,
                          float roi_start, float roi_end);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_IMAGE_RESIZE_AXIS_H_
