// Rounds real numbers to quantised ones: to the nearest integer, ties to even, clamped to the
// type's range.
#ifndef CHAIRLIFT_OPS_QUANTIZATION_ROUNDING_H_
#define CHAIRLIFT_OPS_QUANTIZATION_ROUNDING_H_

#include <cstdint>
#include <limits>
#include <type_traits>

namespace chairlift {

// round(x) + zero_point in Q, of at most 16 bits; NaN becomes the lowest value. Bounds are applied
// first, which gives the same result because they are whole numbers. They also keep x in the range
// where adding and subtracting 1.5 · 2²³ (2⁵² for double) rounds to an integer. Unlike nearbyint(),
// compilers vectorise that.
template <typename Q, typename Real>
inline Q Quantize(Real x, int32_t zero_point) {
  static_assert(sizeof(Q) <= 2);
  const auto low = static_cast<Real>(std::numeric_limits<Q>::lowest() - zero_point);
  const auto high = static_cast<Real>(std::numeric_limits<Q>::max() - zero_point);
  x = x > low ? x : low;
  x = x < high ? x : high;
  constexpr Real kRound = std::is_same_v<Real, float> ? Real{12582912.0} : Real{6755399441055744.0};
  return static_cast<Q>(static_cast<int32_t>((x + kRound) - kRound) + zero_point);
}

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_QUANTIZATION_ROUNDING_H_
