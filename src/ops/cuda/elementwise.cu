#include <algorithm>
#include <limits>

#include "ops/cuda/elementwise.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/types.cuh"

namespace chairlift::cuda {
namespace {

// The result of a step on floats; NaN stays NaN if the operator says so.
template <typename C>
__device__ C Compute1(ElementOp op, C x, C alpha, C beta) {
  switch (op) {
    case ElementOp::kAbs:
      return fabs(x);
    case ElementOp::kNeg:
      return -x;
    case ElementOp::kSqrt:
      return sqrt(x);
    case ElementOp::kReciprocal:
      return C(1) / x;
    case ElementOp::kExp:
      return exp(x);
    case ElementOp::kLog:
      return log(x);
    case ElementOp::kSin:
      return sin(x);
    case ElementOp::kCos:
      return cos(x);
    case ElementOp::kTan:
      return tan(x);
    case ElementOp::kSinh:
      return sinh(x);
    case ElementOp::kCosh:
      return cosh(x);
    case ElementOp::kAsin:
      return asin(x);
    case ElementOp::kAcos:
      return acos(x);
    case ElementOp::kAtan:
      return atan(x);
    case ElementOp::kAsinh:
      return asinh(x);
    case ElementOp::kAcosh:
      return acosh(x);
    case ElementOp::kAtanh:
      return atanh(x);
    case ElementOp::kTanh:
      return tanh(x);
    case ElementOp::kErf:
      return erf(x);
    case ElementOp::kFloor:
      return floor(x);
    case ElementOp::kCeil:
      return ceil(x);
    case ElementOp::kRound:
      return rint(x);
    case ElementOp::kSign:
      return x > C(0) ? C(1) : x < C(0) ? C(-1) : x;
    case ElementOp::kSigmoid:
      return C(1) / (C(1) + exp(-x));
    case ElementOp::kHardSigmoid: {
      const C y = alpha * x + beta;
      return y < C(0) ? C(0) : y > C(1) ? C(1) : y;
    }
    case ElementOp::kHardSwish: {
      const C y = x * C(1.0 / 6) + C(0.5);
      return x * (y < C(0) ? C(0) : y > C(1) ? C(1) : y);
    }
    case ElementOp::kRelu:
      return x < C(0) ? C(0) : x;
    case ElementOp::kLeakyRelu:
      return x < C(0) ? alpha * x : x;
    case ElementOp::kThresholdedRelu:
      return x > alpha ? x : C(0);
    case ElementOp::kElu:
      return x < C(0) ? alpha * expm1(x) : x;
    case ElementOp::kSelu:
      return beta * (x < C(0) ? alpha * expm1(x) : x);
    case ElementOp::kCelu:
      return x < C(0) ? alpha * expm1(x / alpha) : x;
    case ElementOp::kSoftplus:
      return x > C(0) ? x + log1p(exp(-x)) : x != x ? x : log1p(exp(x));
    case ElementOp::kSoftsign:
      return x / (C(1) + fabs(x));
    case ElementOp::kMish: {
      const C softplus = x > C(0) ? x + log1p(exp(-x)) : x != x ? x : log1p(exp(x));
      return x * tanh(softplus);
    }
    case ElementOp::kGelu:
      return x * C(0.5) * (C(1) + erf(x * C(0.7071067811865476)));
    case ElementOp::kGeluTanh:
      return x * C(0.5) * (C(1) + tanh(C(0.7978845608028654) * (x + C(0.044715) * x * x * x)));
    case ElementOp::kSilu:
      return x / (C(1) + exp(-x));
    case ElementOp::kClip: {
      const C y = x < alpha ? alpha : x;
      return y > beta ? beta : y;
    }
    case ElementOp::kScale:
      return alpha * x;
    default:
      return x;
  }
}

template <typename C>
__device__ C Compute2(ElementOp op, C x, C y) {
  switch (op) {
    case ElementOp::kAdd:
      return x + y;
    case ElementOp::kSub:
      return x - y;
    case ElementOp::kMul:
      return x * y;
    case ElementOp::kDiv:
      return x / y;
    case ElementOp::kMax:
      return x > y || x != x ? x : y;
    case ElementOp::kMin:
      return x < y || x != x ? x : y;
    case ElementOp::kPRelu:
      return x < C(0) ? x * y : x;
    case ElementOp::kPow:
      return pow(x, y);
    default:  // kFmod
      return fmod(x, y);
  }
}

__device__ int64_t ComputeInteger(ElementOp op, int64_t x, int64_t y, bool is_unsigned) {
  const auto ux = static_cast<uint64_t>(x), uy = static_cast<uint64_t>(y);
  const bool less = is_unsigned ? ux < uy : x < y;
  switch (op) {
    case ElementOp::kAbs:
      return is_unsigned || x >= 0 ? x : static_cast<int64_t>(0 - ux);
    case ElementOp::kNeg:
      return static_cast<int64_t>(0 - ux);
    case ElementOp::kSign:
      return x == 0 ? 0 : is_unsigned || x > 0 ? 1 : -1;
    case ElementOp::kRelu:
      return is_unsigned || x > 0 ? x : 0;
    case ElementOp::kBitwiseNot:
      return ~x;
    case ElementOp::kAdd:
      return static_cast<int64_t>(ux + uy);
    case ElementOp::kSub:
      return static_cast<int64_t>(ux - uy);
    case ElementOp::kMul:
      return static_cast<int64_t>(ux * uy);
    case ElementOp::kDiv:
      if (y == 0) return 0;
      if (is_unsigned) return static_cast<int64_t>(ux / uy);
      return y == -1 ? static_cast<int64_t>(0 - ux) : x / y;
    case ElementOp::kMax:
      return less ? y : x;
    case ElementOp::kMin:
      return less ? x : y;
    case ElementOp::kBitwiseAnd:
      return x & y;
    case ElementOp::kBitwiseOr:
      return x | y;
    case ElementOp::kBitwiseXor:
      return x ^ y;
    default:
      return x;
  }
}

// The element of each input for output element i.
template <int kMaxInputs>
__device__ void Places(const ElementLoops& loops, int num_inputs, int64_t i, int64_t* places) {
#pragma unroll
  for (int k = 0; k < kMaxInputs; ++k) places[k] = 0;
  for (int d = loops.num_dims - 1; d >= 0; --d) {
    const int64_t at = d == 0 ? i : i % loops.dims[d];
    if (d > 0) i /= loops.dims[d];
#pragma unroll
    for (int k = 0; k < kMaxInputs; ++k) {
      if (k < num_inputs) places[k] += at * loops.strides[k][d];
    }
  }
}

template <typename T>
__global__ void RunProgram(__grid_constant__ const ElementProgram program,
                           __grid_constant__ const ElementLoops loops,
                           __grid_constant__ const ElementInputs inputs, T* out) {
  float values[kMaxElementInputs + kMaxElementSteps];
  int64_t places[kMaxElementInputs];
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < loops.size;
       i += int64_t{gridDim.x} * kThreads) {
    Places<kMaxElementInputs>(loops, program.num_inputs, i, places);
    for (int k = 0; k < program.num_inputs; ++k) {
      values[k] = program.condition[k]
                      ? static_cast<float>(static_cast<const bool*>(inputs.data[k])[places[k]])
                      : Load(static_cast<const T*>(inputs.data[k]) + places[k]);
    }
    float result = 0;
    for (int s = 0; s < program.num_steps; ++s) {
      const ElementStep& step = program.steps[s];
      const float x = values[step.operands[0]];
      if (step.op == ElementOp::kWhere) {
        result = x != 0 ? values[step.operands[1]] : values[step.operands[2]];
      } else if (step.op >= ElementOp::kAdd) {
        result = Compute2(step.op, x, values[step.operands[1]]);
      } else {
        result = Compute1(step.op, x, step.alpha, step.beta);
      }
      values[program.num_inputs + s] = result;
    }
    Store(out + i, result);
  }
}

// --- Any types ---

struct Number {
  double real;
  int64_t integer;
};

__device__ bool IsReal(DType type) {
  return type == DType::kFloat || type == DType::kDouble || type == DType::kFloat16 ||
         type == DType::kBFloat16;
}

template <typename T>
__device__ Number Integer(const void* data, int64_t at) {
  const T value = static_cast<const T*>(data)[at];
  return {static_cast<double>(value), static_cast<int64_t>(value)};
}

__device__ Number Read(DType type, const void* data, int64_t at) {
  switch (type) {
    case DType::kFloat:
      return {static_cast<const float*>(data)[at], 0};
    case DType::kDouble:
      return {static_cast<const double*>(data)[at], 0};
    case DType::kFloat16:
      return {Load(static_cast<const Half*>(data) + at), 0};
    case DType::kBFloat16:
      return {Load(static_cast<const BHalf*>(data) + at), 0};
    case DType::kInt8:
      return Integer<int8_t>(data, at);
    case DType::kInt16:
      return Integer<int16_t>(data, at);
    case DType::kInt32:
      return Integer<int32_t>(data, at);
    case DType::kInt64:
      return Integer<int64_t>(data, at);
    case DType::kUInt8:
      return Integer<uint8_t>(data, at);
    case DType::kUInt16:
      return Integer<uint16_t>(data, at);
    case DType::kUInt32:
      return Integer<uint32_t>(data, at);
    case DType::kUInt64:
      return Integer<uint64_t>(data, at);
    default:
      return Integer<bool>(data, at);
  }
}

// Rounds towards zero, clamps to the range, and maps NaN to 0.
template <typename T>
__device__ T Saturated(double value) {
  constexpr T kLowest = std::numeric_limits<T>::lowest(), kLargest = std::numeric_limits<T>::max();
  if (value != value) return 0;
  if (value <= static_cast<double>(kLowest)) return kLowest;
  if (value >= static_cast<double>(kLargest)) return kLargest;
  return static_cast<T>(value);
}

template <typename T>
__device__ void WriteInteger(void* data, int64_t at, Number value, bool real) {
  static_cast<T*>(data)[at] = real ? Saturated<T>(value.real) : static_cast<T>(value.integer);
}

__device__ void Write(DType type, void* data, int64_t at, Number value, bool real) {
  switch (type) {
    case DType::kFloat:
      static_cast<float*>(data)[at] = static_cast<float>(value.real);
      return;
    case DType::kDouble:
      static_cast<double*>(data)[at] = value.real;
      return;
    case DType::kFloat16:
      Store(static_cast<Half*>(data) + at, static_cast<float>(value.real));
      return;
    case DType::kBFloat16:
      Store(static_cast<BHalf*>(data) + at, static_cast<float>(value.real));
      return;
    case DType::kInt8:
      return WriteInteger<int8_t>(data, at, value, real);
    case DType::kInt16:
      return WriteInteger<int16_t>(data, at, value, real);
    case DType::kInt32:
      return WriteInteger<int32_t>(data, at, value, real);
    case DType::kInt64:
      return WriteInteger<int64_t>(data, at, value, real);
    case DType::kUInt8:
      return WriteInteger<uint8_t>(data, at, value, real);
    case DType::kUInt16:
      return WriteInteger<uint16_t>(data, at, value, real);
    case DType::kUInt32:
      return WriteInteger<uint32_t>(data, at, value, real);
    case DType::kUInt64:
      return WriteInteger<uint64_t>(data, at, value, real);
    default:
      static_cast<bool*>(data)[at] = real ? value.real != 0 : value.integer != 0;
  }
}

struct ElementTypes {
  DType inputs[3];
  DType output;
};

__device__ Number Truth(bool value) { return {value ? 1.0 : 0.0, value ? 1 : 0}; }

__global__ void RunOp(__grid_constant__ const ElementStep step, int num_inputs,
                      __grid_constant__ const ElementLoops loops,
                      __grid_constant__ const ElementInputs inputs, ElementTypes types, void* out) {
  const bool real = IsReal(types.inputs[step.op == ElementOp::kWhere ? 1 : 0]);
  const bool is_unsigned = types.inputs[0] == DType::kUInt64;
  int64_t places[3];
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < loops.size;
       i += int64_t{gridDim.x} * kThreads) {
    Places<3>(loops, num_inputs, i, places);
    const Number x = Read(types.inputs[0], inputs.data[0], places[0]);
    Number y = {0, 0}, z = {0, 0};
    if (num_inputs > 1) y = Read(types.inputs[1], inputs.data[1], places[1]);
    if (num_inputs > 2) z = Read(types.inputs[2], inputs.data[2], places[2]);
    Number result;
    bool result_real = real;
    const bool less = real ? x.real < y.real
                      : is_unsigned
                          ? static_cast<uint64_t>(x.integer) < static_cast<uint64_t>(y.integer)
                          : x.integer < y.integer;
    const bool equal = real ? x.real == y.real : x.integer == y.integer;
    const bool ordered = !real || (x.real == x.real && y.real == y.real);
    switch (step.op) {
      case ElementOp::kIdentity:
        result = x;
        break;
      case ElementOp::kWhere:
        result = x.integer != 0 ? y : z;
        break;
      case ElementOp::kNot:
        result = Truth(x.integer == 0);
        break;
      case ElementOp::kIsNan:
        result = Truth(x.real != x.real);
        break;
      case ElementOp::kEqual:
        result = Truth(equal);
        break;
      case ElementOp::kLess:
        result = Truth(less);
        break;
      case ElementOp::kLessOrEqual:
        result = Truth(less || equal);
        break;
      case ElementOp::kGreater:
        result = Truth(ordered && !less && !equal);
        break;
      case ElementOp::kGreaterOrEqual:
        result = Truth(ordered && !less);
        break;
      case ElementOp::kAnd:
        result = Truth(x.integer != 0 && y.integer != 0);
        break;
      case ElementOp::kOr:
        result = Truth(x.integer != 0 || y.integer != 0);
        break;
      case ElementOp::kXor:
        result = Truth((x.integer != 0) != (y.integer != 0));
        break;
      default:
        if (real) {
          result.real = step.op >= ElementOp::kAdd
                            ? Compute2<double>(step.op, x.real, y.real)
                            : Compute1<double>(step.op, x.real, step.alpha, step.beta);
        } else {
          result.integer = ComputeInteger(step.op, x.integer, y.integer, is_unsigned);
          result.real = static_cast<double>(result.integer);
        }
    }
    if (types.output == DType::kBool && step.op != ElementOp::kIdentity &&
        step.op != ElementOp::kWhere) {
      result_real = false;
    }
    Write(types.output, out, i, result, result_real);
  }
}

}  // namespace

void LaunchElementProgram(const ElementProgram& program, const ElementLoops& loops,
                          const ElementInputs& inputs, DType type, void* out, cudaStream_t stream) {
  if (loops.size == 0) return;
  const auto launch = [&]<typename T>() {
    RunProgram<T>
        <<<Blocks(loops.size), kThreads, 0, stream>>>(program, loops, inputs, static_cast<T*>(out));
  };
  if (type == DType::kFloat) launch.template operator()<float>();
  if (type == DType::kFloat16) launch.template operator()<Half>();
  if (type == DType::kBFloat16) launch.template operator()<BHalf>();
}

void LaunchElementOp(const ElementStep& step, int num_inputs, const ElementLoops& loops,
                     const ElementInputs& inputs, const DType* types, DType out_type, void* out,
                     cudaStream_t stream) {
  if (loops.size == 0) return;
  ElementTypes all = {
      {types[0], num_inputs > 1 ? types[1] : types[0], num_inputs > 2 ? types[2] : types[0]},
      out_type};
  RunOp<<<Blocks(loops.size), kThreads, 0, stream>>>(step, num_inputs, loops, inputs, all, out);
}

}  // namespace chairlift::cuda
