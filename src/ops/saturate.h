// Converts floating-point numbers to any element type without undefined behaviour.
#ifndef CHAIRLIFT_OPS_SATURATE_H_
#define CHAIRLIFT_OPS_SATURATE_H_

#include <cmath>
#include <limits>
#include <type_traits>

namespace chairlift {

// x as a To. Integers: rounded towards zero, clamped if x is out of range, 0 for NaN.
template <typename To, typename From>
To SaturateCast(From x) {
  static_assert(std::is_floating_point_v<From>);
  if constexpr (std::is_integral_v<To>) {
    if (std::isnan(x)) return 0;
    // The first value above To's largest: a power of two, and therefore exact.
    const From end = std::ldexp(From{1}, std::numeric_limits<To>::digits);
    if (x >= end) return std::numeric_limits<To>::max();
    if (x <= static_cast<From>(std::numeric_limits<To>::lowest())) {
      return std::numeric_limits<To>::lowest();
    }
  }
  return static_cast<To>(x);
}

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_SATURATE_H_
