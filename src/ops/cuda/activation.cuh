// The activations of fused products and convolutions, on the device. NaN stays NaN.
#ifndef CHAIRLIFT_OPS_CUDA_ACTIVATION_CUH_
#define CHAIRLIFT_OPS_CUDA_ACTIVATION_CUH_

#include "ops/cuda/device_activation.h"
#include "ops/cuda/types.cuh"

namespace chairlift::cuda {

__device__ __forceinline__ float Exp(float x) { return expf(x); }
__device__ __forceinline__ double Exp(double x) { return exp(x); }
__device__ __forceinline__ float Expm1(float x) { return expm1f(x); }
__device__ __forceinline__ double Expm1(double x) { return expm1(x); }
__device__ __forceinline__ float Tanh(float x) { return tanhf(x); }
__device__ __forceinline__ double Tanh(double x) { return tanh(x); }
__device__ __forceinline__ float Erf(float x) { return erff(x); }
__device__ __forceinline__ double Erf(double x) { return erf(x); }
template <typename C>
__device__ __forceinline__ C Sigmoid(C x) {
  return C(1) / (C(1) + Exp(-x));
}
// min(max(x, low), high).
template <typename C>
__device__ __forceinline__ C Clamp(C x, C low, C high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

// x[i] = f(x[i]) for i in [0, V), for C = float or double.
template <int V, typename C>
__device__ __forceinline__ void Activate(const DeviceActivation& f, C* x) {
  const C alpha = f.alpha;
  const C beta = f.beta;
  const auto each = [&](auto&& g) {
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] = g(x[i]);
  };
  switch (f.kind) {
    case ActivationKind::kNone:
      return;
    case ActivationKind::kRelu:
      return each([](C v) { return v < C(0) ? C(0) : v; });
    case ActivationKind::kLeakyRelu:
      return each([=](C v) { return v < C(0) ? alpha * v : v; });
    case ActivationKind::kClip:
      return each([=](C v) { return Clamp(v, alpha, beta); });
    case ActivationKind::kSigmoid:
      return each([](C v) { return Sigmoid(v); });
    case ActivationKind::kTanh:
      return each([](C v) { return Tanh(v); });
    case ActivationKind::kHardSigmoid:
      return each([=](C v) { return Clamp(alpha * v + beta, C(0), C(1)); });
    case ActivationKind::kHardSwish:
      return each([](C v) { return v * Clamp(v * C(1.0 / 6) + C(0.5), C(0), C(1)); });
    case ActivationKind::kSilu:
      return each([](C v) { return v * Sigmoid(v); });
    case ActivationKind::kElu:
      return each([=](C v) { return v < C(0) ? alpha * Expm1(v) : v; });
    case ActivationKind::kGelu:
      return each([](C v) { return v * C(0.5) * (C(1) + Erf(v * C(0.7071067811865476))); });
    case ActivationKind::kGeluTanh:
      return each([](C v) {
        const C inner = C(0.7978845608028654) * (v + C(0.044715) * v * v * v);
        return v * C(0.5) * (C(1) + Tanh(inner));
      });
  }
}

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_OPS_CUDA_ACTIVATION_CUH_
