#include "ops/image/resize_axis.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

namespace chairlift {
namespace {

template <typename E, size_t kN>
StatusOr<E> Parsed(const Attributes& attributes, const char* attribute,
                   const std::pair<const char*, E> (&names)[kN]) {
  const std::string value = attributes.String(attribute, names[0].first);
  for (const auto& [name, e] : names) {
    if (value == name) return e;
  }
  return InvalidArgument("{} '{}' is not known", attribute, value);
}

// For a scale that leaves a fraction of an element.
float SymmetricPosition(float x, float in, float out, float scale) {
  return in / 2 * (1 - out / (scale * in)) + (x + 0.5f) / scale - 0.5f;
}

// The position of output element x in the input. If the scale is the rounded quotient of the
// lengths, the exact quotient is used: whole positions and halves are then exact. For other scales,
// positions are computed in float, as in ONNX Runtime.
double Position(const ResizeOptions& options, double x, double in, double out, float scale) {
  using Transform = ResizeOptions::Transform;
  const bool quotient = scale == static_cast<float>(out) / static_cast<float>(in);
  const auto unscaled = [=](double at) {
    return quotient ? at * in / out : static_cast<double>(static_cast<float>(at) / scale);
  };
  // The length before it was rounded down to whole elements.
  const double length = quotient ? out : static_cast<double>(scale) * in;
  switch (options.transform) {
    case Transform::kHalfPixel:
      return unscaled(x + 0.5) - 0.5;
    case Transform::kHalfPixelSymmetric:
      return quotient ? unscaled(x + 0.5) - 0.5
                      : SymmetricPosition(static_cast<float>(x), static_cast<float>(in),
                                          static_cast<float>(out), scale);
    case Transform::kPytorchHalfPixel:
      return out > 1 ? unscaled(x + 0.5) - 0.5 : 0;
    case Transform::kAlignCorners:
      return out == 1 ? 0 : x * (in - 1) / (length - 1);
    case Transform::kAsymmetric:
      return unscaled(x);
    case Transform::kTfHalfPixelForNn:
      return unscaled(x + 0.5);
    case Transform::kTfCropAndResize:
      return 0;  // CropPosition()
  }
  return 0;
}

// For a region of interest.
float CropPosition(float x, float in, float out, float roi_start, float roi_end) {
  return out > 1 ? roi_start * (in - 1) + x * (roi_end - roi_start) * (in - 1) / (out - 1)
                 : 0.5f * (roi_start + roi_end) * (in - 1);
}

double Cubic(double x, double a) {
  x = std::abs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

double NearestIndex(ResizeOptions::Nearest mode, double x) {
  switch (mode) {
    case ResizeOptions::Nearest::kRoundPreferFloor:
      return std::ceil(x - 0.5);
    case ResizeOptions::Nearest::kRoundPreferCeil:
      return std::floor(x + 0.5);
    case ResizeOptions::Nearest::kFloor:
      return std::floor(x);
    case ResizeOptions::Nearest::kCeil:
      return std::ceil(x);
  }
  return x;
}

bool IsIdentity(const ResizeAxis& axis) {
  if (axis.in != axis.out || !axis.outside.empty()) return false;
  for (int64_t o = 0; o < axis.out; ++o) {
    for (int k = 0; k < axis.taps; ++k) {
      const size_t at = static_cast<size_t>(k * axis.out + o);
      if (axis.weight[at] != 0 && axis.index[at] != o) return false;
    }
  }
  return true;
}

}  // namespace

StatusOr<ResizeOptions> ResizeOptions::Parse(const Attributes& attributes) {
  ResizeOptions o;
  CHAIRLIFT_ASSIGN_OR_RETURN(o.mode, Parsed<Mode>(attributes, "mode",
                                                  {{"nearest", Mode::kNearest},
                                                   {"linear", Mode::kLinear},
                                                   {"cubic", Mode::kCubic}}));
  CHAIRLIFT_ASSIGN_OR_RETURN(
      o.transform, Parsed<Transform>(attributes, "coordinate_transformation_mode",
                                     {{"half_pixel", Transform::kHalfPixel},
                                      {"half_pixel_symmetric", Transform::kHalfPixelSymmetric},
                                      {"pytorch_half_pixel", Transform::kPytorchHalfPixel},
                                      {"align_corners", Transform::kAlignCorners},
                                      {"asymmetric", Transform::kAsymmetric},
                                      {"tf_half_pixel_for_nn", Transform::kTfHalfPixelForNn},
                                      {"tf_crop_and_resize", Transform::kTfCropAndResize}}));
  CHAIRLIFT_ASSIGN_OR_RETURN(o.nearest,
                             Parsed<Nearest>(attributes, "nearest_mode",
                                             {{"round_prefer_floor", Nearest::kRoundPreferFloor},
                                              {"round_prefer_ceil", Nearest::kRoundPreferCeil},
                                              {"floor", Nearest::kFloor},
                                              {"ceil", Nearest::kCeil}}));
  CHAIRLIFT_ASSIGN_OR_RETURN(o.policy, Parsed<Policy>(attributes, "keep_aspect_ratio_policy",
                                                      {{"stretch", Policy::kStretch},
                                                       {"not_larger", Policy::kNotLarger},
                                                       {"not_smaller", Policy::kNotSmaller}}));
  o.cubic_coeff_a = attributes.Float("cubic_coeff_a", o.cubic_coeff_a);
  o.extrapolation_value = attributes.Float("extrapolation_value", 0);
  o.antialias = attributes.Int("antialias", 0) != 0;
  o.exclude_outside = attributes.Int("exclude_outside", 0) != 0;
  if (o.antialias && o.mode == Mode::kNearest) {
    return InvalidArgument("antialias needs mode linear or cubic");
  }
  return o;
}

ResizeAxis MakeResizeAxis(const ResizeOptions& options, int64_t in, int64_t out, float scale,
                          float roi_start, float roi_end) {
  using Mode = ResizeOptions::Mode;
  const bool crops = options.transform == ResizeOptions::Transform::kTfCropAndResize;
  ResizeAxis axis;
  axis.in = in;
  axis.out = out;
  if (in == out && scale == 1 && !crops) {
    axis.identity = true;
    axis.index.resize(static_cast<size_t>(out));
    std::iota(axis.index.begin(), axis.index.end(), 0);
    axis.weight.assign(static_cast<size_t>(out), 1);
    return axis;
  }
  // Half the width of the filter in input elements; wider if antialiasing shrinks.
  const double radius = options.mode == Mode::kCubic ? 2 : 1;
  const double stretch = options.antialias ? std::min(1.0, static_cast<double>(scale)) : 1;
  const double reach = std::min(radius / stretch, 2.0 * static_cast<double>(in) + 2);
  axis.taps = options.mode == Mode::kNearest ? 1 : 2 * static_cast<int>(std::ceil(reach));
  axis.index.assign(static_cast<size_t>(axis.taps * out), 0);
  axis.weight.assign(static_cast<size_t>(axis.taps * out), 0);
  const auto last = static_cast<double>(in - 1);
  for (int64_t o = 0; o < out; ++o) {
    const double x = crops ? CropPosition(static_cast<float>(o), static_cast<float>(in),
                                          static_cast<float>(out), roi_start, roi_end)
                           : Position(options, static_cast<double>(o), static_cast<double>(in),
                                      static_cast<double>(out), scale);
    if (crops && !(x >= 0 && x <= last)) {
      axis.outside.resize(static_cast<size_t>(out), 0);
      axis.outside[static_cast<size_t>(o)] = 1;
      continue;
    }
    if (options.mode == Mode::kNearest) {
      const double i = std::clamp(NearestIndex(options.nearest, x), 0.0, last);
      axis.index[static_cast<size_t>(o)] = static_cast<int32_t>(i);
      axis.weight[static_cast<size_t>(o)] = 1;
      continue;
    }
    // Positions far outside have the same result as those at the border.
    const double center = std::clamp(x, -reach - 1, last + reach + 1);
    const int taps_before = axis.taps / 2 - 1;
    const double first = std::floor(center) - taps_before;
    double sum = 0;
    for (int k = 0; k < axis.taps; ++k) {
      const double i = first + k;
      const auto at = static_cast<size_t>(k * out + o);
      double w = options.mode == Mode::kCubic
                     ? Cubic((i - center) * stretch, static_cast<double>(options.cubic_coeff_a))
                     : std::max(0.0, 1 - std::abs(i - center) * stretch);
      if (options.exclude_outside && (i < 0 || i > last)) w = 0;
      axis.index[at] = static_cast<int32_t>(std::clamp(i, 0.0, last));
      axis.weight[at] = w;
      sum += w;
    }
    if ((options.antialias || options.exclude_outside) && sum != 0) {
      for (int k = 0; k < axis.taps; ++k) axis.weight[static_cast<size_t>(k * out + o)] /= sum;
    }
  }
  axis.identity = IsIdentity(axis);
  return axis;
}

}  // namespace chairlift
