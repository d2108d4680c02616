// Elementwise operators on the device: programs of steps, and single operations on any types.
#ifndef CHAIRLIFT_OPS_CUDA_ELEMENTWISE_CUH_
#define CHAIRLIFT_OPS_CUDA_ELEMENTWISE_CUH_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "chairlift/tensor.h"

namespace chairlift::cuda {

inline constexpr int kMaxElementInputs = 8;
inline constexpr int kMaxElementDims = 8;
inline constexpr int kMaxElementSteps = 24;

enum class ElementOp : uint8_t {
  // One operand.
  kAbs,
  kNeg,
  kSqrt,
  kReciprocal,
  kExp,
  kLog,
  kSin,
  kCos,
  kTan,
  kSinh,
  kCosh,
  kAsin,
  kAcos,
  kAtan,
  kAsinh,
  kAcosh,
  kAtanh,
  kTanh,
  kErf,
  kFloor,
  kCeil,
  kRound,
  kSign,
  kSigmoid,
  kHardSigmoid,
  kHardSwish,
  kRelu,
  kLeakyRelu,
  kThresholdedRelu,
  kElu,
  kSelu,
  kCelu,
  kSoftplus,
  kSoftsign,
  kMish,
  kGelu,
  kGeluTanh,
  kSilu,
  kClip,
  kScale,  // alpha times
  kIdentity,
  kNot,
  kBitwiseNot,
  kIsNan,
  // Two operands.
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMax,
  kMin,
  kPRelu,
  kPow,
  kFmod,  // a remainder with the sign of the dividend
  kEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kAnd,
  kOr,
  kXor,
  kBitwiseAnd,
  kBitwiseOr,
  kBitwiseXor,
  // Three operands: the second if the first is true, else the third.
  kWhere,
};

// One step. Operands are inputs by number, followed by the results of earlier steps.
struct ElementStep {
  ElementOp op;
  int8_t operands[3];
  float alpha, beta;
};

// The last step's result is the output. Inputs have `type`, except conditions, which are bytes.
struct ElementProgram {
  int num_inputs;
  int num_steps;
  bool condition[kMaxElementInputs];
  ElementStep steps[kMaxElementSteps];
};

// Over the output's elements in memory order; strides in elements, 0 where an input repeats.
struct ElementLoops {
  int num_dims;
  int64_t size;
  int64_t dims[kMaxElementDims];
  int64_t strides[kMaxElementInputs][kMaxElementDims];
};

struct ElementInputs {
  const void* data[kMaxElementInputs];
};

// `type`: float32, float16 or bfloat16, computed in float32.
void LaunchElementProgram(const ElementProgram& program, const ElementLoops& loops,
                          const ElementInputs& inputs, DType type, void* out, cudaStream_t stream);

// One operation on operands of any types (`types`, of the inputs). Floats are computed in float64,
// integers in 64 bits that wrap. Results are rounded once to float types; floats are converted to
// integers as by Cast.
void LaunchElementOp(const ElementStep& step, int num_inputs, const ElementLoops& loops,
                     const ElementInputs& inputs, const DType* types, DType out_type, void* out,
                     cudaStream_t stream);

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_OPS_CUDA_ELEMENTWISE_CUH_
