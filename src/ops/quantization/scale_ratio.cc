#include "ops/quantization/scale_ratio.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace chairlift {
double Exactly(float x) {
  // Decodes the bits, because a conversion may treat a denormal as zero too.
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7f800000u) != 0) return static_cast<double>(x);
  const double size = static_cast<double>(bits & 0x7fffffu) * 0x1p-149;
  return (bits >> 31) != 0 ? -size : size;
}

bool AnyUnusual(std::span<const float> scales) {
  return !std::all_of(scales.begin(), scales.end(), [](float s) { return std::isnormal(s); });
}

double WideScaleRatio(float a, float b, float c) {
  const float product = a * b;
  const float ratio = product / c;
  if (std::isnormal(product) && std::isnormal(ratio)) return static_cast<double>(ratio);
  constexpr double kMost = 1e200;
  const double wide = Exactly(a) * Exactly(b) / Exactly(c);
  return std::isnan(wide) ? wide : std::clamp(wide, -kMost, kMost);
}

float ScaleRatio(float a, float b, float c) {
  constexpr double kMost = std::numeric_limits<float>::max();
  const double wide = WideScaleRatio(a, b, c);
  return static_cast<float>(std::isnan(wide) ? wide : std::clamp(wide, -kMost, kMost));
}

}  // namespace chairlift
