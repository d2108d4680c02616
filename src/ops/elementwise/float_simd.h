// Vectorised float32 elementwise functions for the current machine.
//
// Accuracy relative to the exact value: one rounding for arithmetic; at most 4 ulp for
// transcendental functions, except Erf and Gelu: 5e-7 absolute (Gelu: times |x|). NaN gives NaN.
#ifndef CHAIRLIFT_OPS_ELEMENTWISE_FLOAT_SIMD_H_
#define CHAIRLIFT_OPS_ELEMENTWISE_FLOAT_SIMD_H_

#include "ops/elementwise/element_kernel.h"

namespace chairlift {

enum class FloatUnary {
  kAbs,
  kNeg,
  kSqrt,
  kReciprocal,
  kExp,
  kLog,
  kSin,
  kCos,
  kTanh,
  kSigmoid,
  kHardSigmoid,  // params: alpha, beta
  kHardSwish,
  kRelu,
  kLeakyRelu,        // params: alpha
  kThresholdedRelu,  // params: alpha
  kElu,              // params: alpha
  kSelu,             // params: alpha, gamma
  kCelu,             // params: alpha
  kSoftplus,
  kSoftsign,
  kMish,
  kGelu,
  kGeluTanh,
  kErf,
  kFloor,
  kCeil,
  kRound,
  kSilu,
  kClip,  // params: min, max
};
ElementFn FindFloatUnary(FloatUnary op);

enum class FloatBinary { kAdd, kSub, kMul, kDiv, kMax, kMin, kPRelu };
ElementFn FindFloatBinary(FloatBinary op);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_ELEMENTWISE_FLOAT_SIMD_H_
