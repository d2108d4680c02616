// Plain loops over an ElementBlock for any element types, with a stateless functor.
#ifndef CHAIRLIFT_OPS_ELEMENTWISE_ELEMENT_LOOPS_H_
#define CHAIRLIFT_OPS_ELEMENTWISE_ELEMENT_LOOPS_H_

#include <algorithm>
#include <cstdint>

#include "ops/elementwise/element_kernel.h"

namespace chairlift {

// Op: `static Out Apply(In x, const ElementParams&)`.
template <typename Op, typename In, typename Out>
void UnaryBlock(const ElementBlock& b) {
  for (int64_t r = 0; r < b.rows; ++r) {
    const In* x = static_cast<const In*>(b.in[0]) + r * b.row_step[0];
    Out* out = static_cast<Out*>(b.out) + r * b.cols;
    if (b.col_step[0] == 0) {
      std::fill_n(out, b.cols, Op::Apply(*x, b.params));
    } else {
      for (int64_t c = 0; c < b.cols; ++c) out[c] = Op::Apply(x[c], b.params);
    }
  }
}

// Op: `static Out Apply(X x, Y y)`.
template <typename Op, typename X, typename Y, typename Out>
void BinaryBlock(const ElementBlock& b) {
  for (int64_t r = 0; r < b.rows; ++r) {
    const X* x = static_cast<const X*>(b.in[0]) + r * b.row_step[0];
    const Y* y = static_cast<const Y*>(b.in[1]) + r * b.row_step[1];
    Out* out = static_cast<Out*>(b.out) + r * b.cols;
    if (b.col_step[0] != 0 && b.col_step[1] != 0) {
      for (int64_t c = 0; c < b.cols; ++c) out[c] = Op::Apply(x[c], y[c]);
    } else if (b.col_step[0] != 0) {
      const Y scalar = *y;
      for (int64_t c = 0; c < b.cols; ++c) out[c] = Op::Apply(x[c], scalar);
    } else if (b.col_step[1] != 0) {
      const X scalar = *x;
      for (int64_t c = 0; c < b.cols; ++c) out[c] = Op::Apply(scalar, y[c]);
    } else {
      std::fill_n(out, b.cols, Op::Apply(*x, *y));
    }
  }
}

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_ELEMENTWISE_ELEMENT_LOOPS_H_
