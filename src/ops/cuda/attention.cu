#include <algorithm>

#include "ops/cuda/attention.cuh"
#include "ops/cuda/types.cuh"

namespace chairlift::cuda {
namespace {

constexpr int kWarp = 32, kWarps = 4;
constexpr int kColumns = kMaxAttentionColumns / kWarp;  // per lane
constexpr unsigned kAll = 0xffffffff;

__device__ float Largest(float x) {
  for (int apart = kWarp / 2; apart > 0; apart /= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, apart));
  return x;
}
__device__ float Sum(float x) {
  for (int apart = kWarp / 2; apart > 0; apart /= 2) x += __shfl_xor_sync(kAll, x, apart);
  return x;
}

template <typename T>
__global__ void Attend(__grid_constant__ const AttentionCall call, const T* q, const T* k,
                       const T* v, const T* mask, T* y) {
  const int lane = threadIdx.x % kWarp;
  const int64_t all = call.batch * call.heads * call.queries;
  for (int64_t unit = blockIdx.x * int64_t{kWarps} + threadIdx.x / kWarp; unit < all;
       unit += int64_t{gridDim.x} * kWarps) {
    const int64_t row = unit % call.queries, h = unit / call.queries % call.heads,
                  b = unit / call.queries / call.heads;
    const T* const query = q + b * call.q[0] + h * call.q[1] + row * call.q[2];
    const T* const keys = k + b * call.k[0] + h / call.sharing * call.k[1];
    const T* const values = v + b * call.v[0] + h / call.sharing * call.v[1];
    const T* const bias = mask == nullptr ? nullptr
                                          : mask + b * call.mask[0] + h * call.mask[1] +
                                                row * call.mask[2] + call.mask_first;
    const int64_t begin = max(int64_t{0}, row + call.first_seen);
    const int64_t end = min(call.keys, row + call.last_seen + 1);
    float out[kColumns] = {};
    float most = -INFINITY, sum = 0;
    bool nan = false;
    for (int64_t first = begin; first < end; first += kWarp) {
      const int64_t j = first + lane;
      float score = -INFINITY;
      if (j < end) {
        score = 0;
        const T* const key = keys + j * call.k[2];
        for (int64_t c = 0; c < call.head_size; ++c) {
          score += Load(query + c * call.q[3]) * Load(key + c * call.k[3]);
        }
        score *= call.scale;
        if (call.softcap != 0) score = call.softcap * tanhf(score / call.softcap);
        if (bias != nullptr) score += Load(bias + j * call.mask[3]);
      }
      nan = nan || __any_sync(kAll, score != score);
      const float higher = fmaxf(most, Largest(score));
      if (higher == -INFINITY) continue;
      const float shrink = expf(most - higher);
      const float weight = expf(score - higher);
      most = higher;
      sum = sum * shrink + Sum(weight);
      for (int i = 0; i < kColumns; ++i) out[i] *= shrink;
      const int count = static_cast<int>(min(int64_t{kWarp}, end - first));
      for (int other = 0; other < count; ++other) {
        const float share = __shfl_sync(kAll, weight, other);
        if (share == 0) continue;
        const T* const value = values + (first + other) * call.v[2];
        for (int i = 0; i < kColumns; ++i) {
          const int64_t c = lane + i * kWarp;
          if (c >= call.value_size) break;
          out[i] += share * Load(value + c);
        }
      }
    }
    T* const to = y + b * call.y[0] + h * call.y[1] + row * call.y[2];
    for (int i = 0; i < kColumns; ++i) {
      const int64_t c = lane + i * kWarp;
      if (c >= call.value_size) break;
      float result = out[i] / sum;
      if (most == -INFINITY) result = call.zeros_for_none || call.keys == 0 ? 0.0f : NAN;
      Store(to + c, nan ? NAN : result);
    }
  }
}

}  // namespace

void LaunchAttention(DType dtype, const AttentionCall& call, const void* q, const void* k,
                     const void* v, const void* mask, void* y, cudaStream_t stream) {
  const int64_t all = call.batch * call.heads * call.queries;
  if (all == 0 || call.value_size == 0) return;
  const auto blocks =
      static_cast<unsigned>(std::min<int64_t>((all + kWarps - 1) / kWarps, 1 << 20));
  const auto launch = [&]<typename T>() {
    Attend<T><<<blocks, kWarps * kWarp, 0, stream>>>(
        call, static_cast<const T*>(q), static_cast<const T*>(k), static_cast<const T*>(v),
        static_cast<const T*>(mask), static_cast<T*>(y));
  };
  if (dtype == DType::kFloat) launch.template operator()<float>();
  if (dtype == DType::kFloat16) launch.template operator()<Half>();
  if (dtype == DType::kBFloat16) launch.template operator()<BHalf>();
}

}  // namespace chairlift::cuda
