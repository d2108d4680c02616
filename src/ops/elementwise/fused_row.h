// A row of chairlift::FusedElementwise: a sequence of operations on values that stay in registers.
#ifndef CHAIRLIFT_OPS_ELEMENTWISE_FUSED_ROW_H_
#define CHAIRLIFT_OPS_ELEMENTWISE_FUSED_ROW_H_

#include <cstdint>
#include <span>

#include "ops/elementwise/float_simd.h"

namespace chairlift {

// Floats computed at once, at most, whatever the instruction set.
inline constexpr int64_t kFusedRowChunk = 64;

// An operation on the value at hand, x, for some neighbouring elements at once; y is the operand.
struct FusedRowOp {
  enum Kind : uint8_t {
    kLoad,         // x = y
    kStore,        // y = x: kFusedRowChunk floats
    kUnary,        // x = f(x)
    kBinary,       // x = f(x, y)
    kReversed,     // x = f(y, x)
    kKeepWhere,    // x = condition ? x : y
    kChangeWhere,  // x = condition ? y : x
  };
  Kind kind = kLoad;
  FloatUnary unary = {};
  FloatBinary binary = {};
  float alpha = 0;  // of unary functions
  float beta = 0;
  // An element for each of the row's where it walks along; else kFusedRowChunk floats that serve
  // every chunk.
  float* operand = nullptr;
  bool walks = false;
  const uint8_t* condition = nullptr;  // likewise
  bool condition_walks = false;
};

// x after all of `ops`, for each of n elements, to `out`. It may lie over an operand that walks.
void RunFusedRow(std::span<const FusedRowOp> ops, float* out, int64_t n);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_ELEMENTWISE_FUSED_ROW_H_
