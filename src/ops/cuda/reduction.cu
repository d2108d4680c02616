#include <algorithm>
#include <limits>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduction.cuh"
#include "ops/cuda/types.cuh"

namespace chairlift::cuda {
namespace {

constexpr int kWarp = 32;
// The type in which elements are folded.
template <typename T>
struct FoldType {
  using Type =
      std::conditional_t<std::is_integral_v<T>,
                         std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>, Compute<T>>;
};
template <typename T>
using FoldIn = typename FoldType<T>::Type;

// The fold of no elements; for integers, an end of T's range.
template <typename T, typename C>
__device__ C Nothing(Fold fold) {
  constexpr bool kReal = std::is_floating_point_v<C>;
  constexpr C kInfinity =
      kReal ? std::numeric_limits<C>::infinity() : C(std::numeric_limits<T>::max());
  constexpr C kLowest =
      kReal ? -std::numeric_limits<C>::infinity() : C(std::numeric_limits<T>::lowest());
  if (fold == Fold::kMax) return kLowest;
  if (fold == Fold::kMin) return kInfinity;
  return fold == Fold::kProd ? C(1) : C(0);
}

template <typename C>
__device__ C Combined(Fold fold, C x, C y) {
  switch (fold) {
    case Fold::kMax:
      return x > y || x != x ? x : y;
    case Fold::kMin:
      return x < y || x != x ? x : y;
    case Fold::kProd:
      return x * y;
    default:
      return x + y;
  }
}

template <typename C>
__device__ C Mapped(Fold fold, C x) {
  if constexpr (std::is_signed_v<C>) {
    if (fold == Fold::kL1) return x < C(0) ? -x : x;
  }
  if (fold == Fold::kL2 || fold == Fold::kSumSquare) return x * x;
  return x;
}

template <typename C>
__device__ C Finished(Fold fold, C x, int64_t count) {
  if constexpr (std::is_floating_point_v<C>) {
    if (fold == Fold::kMean) return x / static_cast<C>(count);
    if (fold == Fold::kL2) return sqrt(x);
    if (fold == Fold::kLogSum) return log(x);
  } else {
    if (fold == Fold::kMean) return count == 0 ? C(0) : x / static_cast<C>(count);
  }
  return x;
}

__device__ int64_t PlaceOf(int64_t index, int num_dims, const int64_t* dims,
                           const int64_t* strides) {
  int64_t place = 0;
  for (int d = num_dims - 1; d > 0; --d) {
    place += index % dims[d] * strides[d];
    index /= dims[d];
  }
  return num_dims == 0 ? 0 : place + index * strides[0];
}

template <int kLanes, typename C>
__device__ C Together(Fold fold, C x) {
#pragma unroll
  for (int apart = kLanes / 2; apart > 0; apart /= 2) {
    x = Combined(fold, x, __shfl_xor_sync(0xffffffff, x, apart));
  }
  return x;
}

// kLanes adjacent threads fold one output, in whole warps if kLanes is above 1. Adjacent lanes read
// adjacent elements; or (columns) adjacent threads do.
template <typename T, int kLanes>
__global__ void FoldAll(Fold fold, __grid_constant__ const FoldLoops loops, const T* in, T* out) {
  using C = FoldIn<T>;
  const int lane = threadIdx.x % kLanes;
  constexpr int kOutputs = kThreads / kLanes;
  for (int64_t first = blockIdx.x * int64_t{kOutputs}; first < loops.kept;
       first += int64_t{gridDim.x} * kOutputs) {
    const int64_t o = first + threadIdx.x / kLanes;
    const bool there = o < loops.kept;
    const T* const from =
        in + (there ? PlaceOf(o, loops.num_kept, loops.kept_dims, loops.kept_strides) : 0);
    const auto at = [&](int64_t i) {
      return static_cast<C>(
          Load(from + PlaceOf(i, loops.num_folded, loops.folded_dims, loops.folded_strides)));
    };
    C largest = C(0);
    if constexpr (std::is_floating_point_v<C>) {
      if (fold == Fold::kLogSumExp) {
        C most = Nothing<T, C>(Fold::kMax);
        for (int64_t i = lane; there && i < loops.folded; i += kLanes) {
          most = Combined(Fold::kMax, most, at(i));
        }
        if (kLanes > 1) most = Together<kLanes>(Fold::kMax, most);
        largest = isinf(most) ? C(0) : most;
      }
    }
    // A mean is summed relative to its first element, unless that is too large for differences,
    // because values may be large compared with their differences.
    C from_first = C(0);
    if constexpr (std::is_floating_point_v<C>) {
      if (fold == Fold::kMean && there && loops.folded > 0) {
        const C x = at(0);
        if (abs(x) <= C(1e30)) from_first = x;
      }
    }
    C folded = Nothing<T, C>(fold);
    for (int64_t i = lane; there && i < loops.folded; i += kLanes) {
      C x = at(i) - from_first;
      if constexpr (std::is_floating_point_v<C>) {
        if (fold == Fold::kLogSumExp) x = exp(x - largest);
      }
      folded = Combined(fold, folded, Mapped(fold, x));
    }
    if (kLanes > 1) folded = Together<kLanes>(fold, folded);
    if (!there || lane != 0) continue;
    folded = Finished(fold, folded, loops.folded);
    if (fold == Fold::kMean) folded += from_first;
    if constexpr (std::is_floating_point_v<C>) {
      if (fold == Fold::kLogSumExp) folded = log(folded) + largest;
      Store(out + o, static_cast<Compute<T>>(folded));
    } else {
      out[o] = static_cast<T>(folded);
    }
  }
}

template <typename T>
__global__ void ArgFold(bool largest, bool last, int64_t outer, int64_t size, int64_t inner,
                        const T* in, int64_t* out) {
  for (int64_t o = blockIdx.x * int64_t{kThreads} + threadIdx.x; o < outer * inner;
       o += int64_t{gridDim.x} * kThreads) {
    const T* const from = in + o / inner * size * inner + o % inner;
    auto best = Load(from);
    int64_t at = 0;
    for (int64_t i = 1; i < size; ++i) {
      const auto x = Load(from + i * inner);
      const bool best_nan = best != best, nan = x != x;
      const bool beyond = nan ? !best_nan : !best_nan && (largest ? x > best : x < best);
      const bool equal = nan ? best_nan : !best_nan && x == best;
      if (beyond || (last && equal)) {
        best = x;
        at = i;
      }
    }
    out[o] = at;
  }
}

template <typename T>
__global__ void CumSum(bool exclusive, bool reverse, int64_t outer, int64_t size, int64_t inner,
                       const T* in, T* out) {
  for (int64_t o = blockIdx.x * int64_t{kThreads} + threadIdx.x; o < outer * inner;
       o += int64_t{gridDim.x} * kThreads) {
    const int64_t first = o / inner * size * inner + o % inner;
    FoldIn<T> sum = 0;
    for (int64_t i = 0; i < size; ++i) {
      const int64_t at = first + (reverse ? size - 1 - i : i) * inner;
      const auto x = static_cast<FoldIn<T>>(Load(in + at));
      const FoldIn<T> before = sum;
      sum += x;
      Store(out + at, static_cast<Compute<T>>(exclusive ? before : sum));
    }
  }
}

}  // namespace

bool LaunchCumSum(DType type, bool exclusive, bool reverse, int64_t outer, int64_t size,
                  int64_t inner, const void* in, void* out, cudaStream_t stream) {
  const auto launch = [&]<typename T>() {
    const int64_t count = outer * inner;
    if (count * size == 0) return;
    CumSum<T><<<Blocks(count), kThreads, 0, stream>>>(
        exclusive, reverse, outer, size, inner, static_cast<const T*>(in), static_cast<T*>(out));
  };
  return ForNumbers(type, launch);
}

bool LaunchFold(Fold fold, DType type, const FoldLoops& loops, const void* in, void* out,
                cudaStream_t stream) {
  const auto launch = [&]<typename T>() {
    if (loops.kept == 0) return;
    // If the folded elements of an output are contiguous, a warp folds them, otherwise a thread.
    const bool rows = loops.folded >= kWarp && loops.num_folded > 0 &&
                      loops.folded_strides[loops.num_folded - 1] == 1;
    const bool few = loops.kept < 4096 && loops.folded >= kWarp;
    const int64_t outputs = rows || few ? kThreads / kWarp : kThreads;
    const auto blocks =
        static_cast<unsigned>(std::min<int64_t>((loops.kept + outputs - 1) / outputs, 1 << 20));
    const auto* const from = static_cast<const T*>(in);
    if (rows || few) {
      FoldAll<T, kWarp><<<blocks, kThreads, 0, stream>>>(fold, loops, from, static_cast<T*>(out));
    } else {
      FoldAll<T, 1><<<blocks, kThreads, 0, stream>>>(fold, loops, from, static_cast<T*>(out));
    }
  };
  return ForNumbers(type, launch);
}

bool LaunchArgFold(bool largest, bool last, DType type, int64_t outer, int64_t size, int64_t inner,
                   const void* in, int64_t* out, cudaStream_t stream) {
  const auto launch = [&]<typename T>() {
    const int64_t count = outer * inner;
    if (count == 0) return;
    ArgFold<T><<<Blocks(count), kThreads, 0, stream>>>(largest, last, outer, size, inner,
                                                       static_cast<const T*>(in), out);
  };
  return ForNumbers(type, launch);
}

}  // namespace chairlift::cuda
