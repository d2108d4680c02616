#include <algorithm>
#include <limits>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/pooling.cuh"
#include "ops/cuda/types.cuh"

namespace chairlift::cuda {
namespace {

template <typename T>
struct Lowest {
  static constexpr Compute<T> kValue = std::numeric_limits<Compute<T>>::lowest();
};
template <>
struct Lowest<Half> {
  static constexpr float kValue = -65504.0f;
};
template <>
struct Lowest<BHalf> {
  static constexpr float kValue = -3.3895314e38f;
};

template <typename T>
__global__ void Pool(__grid_constant__ const PoolCall call, const T* x, T* y, int64_t* places) {
  using C = Compute<T>;
  const int64_t out_size = call.out[0] * call.out[1] * call.out[2];
  const int64_t in_size = call.in[0] * call.in[1] * call.in[2];
  const int64_t count = call.planes * out_size;
  for (int64_t o = blockIdx.x * int64_t{kThreads} + threadIdx.x; o < count;
       o += int64_t{gridDim.x} * kThreads) {
    const int64_t plane = o / out_size;
    const int64_t at[3] = {o % out_size / (call.out[1] * call.out[2]),
                           o / call.out[2] % call.out[1], o % call.out[2]};
    const int64_t* const tz = call.taps + 3 * at[0];
    const int64_t* const ty = call.taps + 3 * (call.out[0] + at[1]);
    const int64_t* const tx = call.taps + 3 * (call.out[0] + call.out[1] + at[2]);
    const T* const in = x + plane * in_size;
    C value = call.kind == Pooling::kMax ? Lowest<T>::kValue : C(0);
    int64_t place = -1;
    for (int64_t a = 0; a < tz[1]; ++a) {
      for (int64_t b = 0; b < ty[1]; ++b) {
        const int64_t row =
            ((tz[0] + a * call.dilation[0]) * call.in[1] + ty[0] + b * call.dilation[1]) *
            call.in[2];
        for (int64_t c = 0; c < tx[1]; ++c) {
          const int64_t from = row + tx[0] + c * call.dilation[2];
          const C element = Load(in + from);
          if (call.kind == Pooling::kMax) {
            if (element > value || place < 0 || (element != element && value == value)) {
              value = element;
              place = from;
            }
          } else if constexpr (std::is_floating_point_v<C>) {
            if (call.kind == Pooling::kLp) {
              const C size = fabs(element);
              value += call.p == 2 ? size * size : call.p == 1 ? size : pow(size, C(call.p));
            } else {
              value += element;
            }
          }
        }
      }
    }
    if constexpr (std::is_floating_point_v<C>) {
      if (call.kind == Pooling::kAverage || call.kind == Pooling::kAverageWithPadding) {
        const int which = call.kind == Pooling::kAverage ? 1 : 2;
        const int64_t taps = tz[which] * ty[which] * tx[which];
        value /= C(taps > 1 ? taps : 1);
      }
      if (call.kind == Pooling::kLp && call.p != 1) {
        value = call.p == 2 ? sqrt(value) : pow(value, C(1) / C(call.p));
      }
    }
    Store(y + o, value);
    if (places == nullptr) continue;
    if (call.column_major && place >= 0) {
      const int64_t px = place % call.in[2], py = place / call.in[2] % call.in[1],
                    pz = place / call.in[2] / call.in[1];
      place = (px * call.in[1] + py) * call.in[0] + pz;
    }
    places[o] = plane * in_size + place;
  }
}

}  // namespace

bool LaunchPool(DType dtype, const PoolCall& call, const void* x, void* y, int64_t* places,
                cudaStream_t stream) {
  const auto launch = [&]<typename T>() {
    const int64_t count = call.planes * call.out[0] * call.out[1] * call.out[2];
    if (count == 0) return;
    Pool<T><<<Blocks(count), kThreads, 0, stream>>>(call, static_cast<const T*>(x),
                                                    static_cast<T*>(y), places);
  };
  if (dtype == DType::kInt8) {
    launch.template operator()<int8_t>();
    return true;
  }
  if (dtype == DType::kUInt8) {
    launch.template operator()<uint8_t>();
    return true;
  }
  return ForFloats(dtype, launch);
}

}  // namespace chairlift::cuda
