// Real numbers to quantised ones: to the nearest integer, ties to even, held to the type's range.
#ifndef CHAIRLIFT_OPS_QUANTIZATION_ROUNDING_H_
#define CHAIRLIFT_OPS_QUANTIZATION_ROUNDING_H_

#include <cstdint>
#include <limits>

namespace chairlift {

// round(x) + zero_point in Q, of at most 16 bits; NaN becomes the lowest value. Bounds are applied
// first, which gives the same result as they are whole numbers, and keeps x where adding and taking
// away 1.5 · 2²³ rounds to an integer: unlike nearbyint() a compiler turns that into vectors.
template <typename Q>
inline Q Quantize(float x, int32_t zero_point) {
  static_assert(sizeof(Q) <= 2);
  const float low = static_cast<float>(std::numeric_limits<Q>::lowest() - zero_point);
  const float high = static_cast<float>(std::numeric_limits<Q>::max() - zero_point);
  x = x > low ? x : low;
  x = x < high ? x : high;
  constexpr float kRound = 12582912.0f;
  return static_cast<Q>(static_cast<int32_t>((x + kRound) - kRound) + zero_point);
}

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_QUANTIZATION_ROUNDING_H_
