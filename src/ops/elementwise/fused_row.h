// A row of chairlift::FusedElementwise: a sequence of operations on values in registers.
#ifndef CHAIRLIFT_OPS_ELEMENTWISE_FUSED_ROW_H_
#define CHAIRLIFT_OPS_ELEMENTWISE_FUSED_ROW_H_

#include <cstdint>
#include <span>

#include "ops/elementwise/float_simd.h"

namespace chairlift {

// The most floats computed together, on any instruction set.
inline constexpr int64_t kFusedRowChunk = 128;

// An operation on the current value x, for some adjacent elements together; y is the operand.
struct FusedRowOp {
  // The operation as one number: x = f(x), x = f(x, y) and x = f(y, x) for all f of float_simd.h,
  // or one of those below.
  using Code = uint8_t;
  static constexpr Code Unary(FloatUnary f) { return static_cast<Code>(f); }
  static constexpr Code Binary(FloatBinary f) {
    return static_cast<Code>(64 + static_cast<int>(f));
  }
  static constexpr Code Reversed(FloatBinary f) {
    return static_cast<Code>(80 + static_cast<int>(f));
  }
  static constexpr Code kLoad = 96;         // x = y
  static constexpr Code kStore = 97;        // y = x: kFusedRowChunk floats
  static constexpr Code kKeepWhere = 98;    // x = condition ? x : y
  static constexpr Code kChangeWhere = 99;  // x = condition ? y : x

  Code code = kLoad;
  float alpha = 0;  // for functions of x alone
  float beta = 0;
  // If `walk` is −1: one element per element of the row. If it is 0: kFusedRowChunk floats that are
  // used for every chunk.
  float* operand = nullptr;
  int64_t walk = 0;
  const uint8_t* condition = nullptr;  // the same for conditions
  int64_t condition_walk = 0;
};

// Writes x after all of `ops`, for each of n elements, to `out`, which may be the memory of an
// operand with `walk` −1.
void RunFusedRow(std::span<const FusedRowOp> ops, float* out, int64_t n);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_ELEMENTWISE_FUSED_ROW_H_
