#include <algorithm>

#include "ops/cuda/activation.cuh"
#include "ops/cuda/convolution.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/types.cuh"

namespace chairlift::cuda {
namespace {

template <typename T>
__global__ void MoveImages(__grid_constant__ const ImageMove move, int64_t count, const T* in,
                           const T* scale, T* out) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * kThreads) {
    int64_t rest = i, from = 0, stride = 1;
    bool there = true;
    for (int d = 2; d >= 0; --d) {
      const int64_t at = rest % move.out[d] - move.begin[d];
      rest /= move.out[d];
      there = there && at >= 0 && at < move.in[d];
      from += at * stride;
      stride *= move.in[d];
    }
    Compute<T> value = 0;
    if (there) value = Load(in + rest * stride + from);
    if (there && scale != nullptr) {
      value *= Load(scale + (move.scale_per_image ? rest : rest % move.channels));
    }
    Store(out + i, value);
  }
}

template <typename T>
__global__ void FinishConvolution(int64_t channels, int64_t spatial, int64_t count, const T* bias,
                                  const T* residual, DeviceActivation activation, T* y) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * kThreads) {
    Compute<T> value[1] = {Load(y + i)};
    if (bias != nullptr) value[0] += Load(bias + i / spatial % channels);
    if (residual != nullptr) value[0] += Load(residual + i);
    Activate<1>(activation, value);
    Store(y + i, value[0]);
  }
}

}  // namespace

void LaunchMoveImages(DType dtype, const ImageMove& move, const void* in, const void* scale,
                      void* out, cudaStream_t stream) {
  const int64_t count = move.batch * move.channels * move.out[0] * move.out[1] * move.out[2];
  if (count == 0) return;
  ForFloats(dtype, [&]<typename T>() {
    MoveImages<T><<<Blocks(count), kThreads, 0, stream>>>(
        move, count, static_cast<const T*>(in), static_cast<const T*>(scale), static_cast<T*>(out));
  });
}

void LaunchFinishConvolution(DType dtype, int64_t batch, int64_t channels, int64_t spatial,
                             const void* bias, const void* residual,
                             const DeviceActivation& activation, void* y, cudaStream_t stream) {
  const int64_t count = batch * channels * spatial;
  if (count == 0) return;
  ForFloats(dtype, [&]<typename T>() {
    FinishConvolution<T><<<Blocks(count), kThreads, 0, stream>>>(
        channels, spatial, count, static_cast<const T*>(bias), static_cast<const T*>(residual),
        activation, static_cast<T*>(y));
  });
}

}  // namespace chairlift::cuda
