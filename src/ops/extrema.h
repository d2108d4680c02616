// Maxima and minima of scalars.
#ifndef CHAIRLIFT_OPS_EXTREMA_H_
#define CHAIRLIFT_OPS_EXTREMA_H_

namespace chairlift {

// The larger (smaller) of two; NaN if either is NaN, as in numpy's maximum() and minimum(). The
// second if they are equal.
template <typename T>
constexpr T Larger(T a, T b) {
  return a > b || a != a ? a : b;
}
template <typename T>
constexpr T Smaller(T a, T b) {
  return a < b || a != a ? a : b;
}

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_EXTREMA_H_
