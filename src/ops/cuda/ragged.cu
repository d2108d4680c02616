// Kernels over packed sequences, except attention.
#include <algorithm>
#include <type_traits>

#include "device/cuda/cuda_stream.h"
#include "ops/cuda/ragged.cuh"
#include "ops/cuda/types.cuh"

namespace chairlift::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kFault = static_cast<int>(DataFault::kIndexOutOfRange);

int GridFor(int64_t blocks) { return static_cast<int>(std::min(blocks, (int64_t{1} << 31) - 1)); }
int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

__device__ __forceinline__ void CheckAllOffsets(const Sequences& p) {
  if (blockIdx.x == 0) CheckOffsets(p.offsets, p.count, p.tokens, p.fault, kFault);
}
__device__ __forceinline__ int64_t Begin(const Sequences& p, int64_t s) {
  return OffsetAt(p.offsets, s, p.tokens);
}
__device__ __forceinline__ int64_t Thread() {
  return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}
__device__ __forceinline__ int64_t Threads() { return static_cast<int64_t>(gridDim.x) * kThreads; }

// The type of sums: integers wrap around.
template <typename T>
using Sum = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;

// NaN if either is NaN.
template <typename C>
__device__ __forceinline__ C Larger(C a, C b) {
  return a > b || a != a ? a : b;
}
template <typename C>
__device__ __forceinline__ C Smaller(C a, C b) {
  return a < b || a != a ? a : b;
}

// One thread per sequence and column.
template <typename T, RaggedFold kFold>
__global__ void __launch_bounds__(kThreads)
    ReduceKernel(Sequences p, int64_t columns, const T* x, T* y) {
  using C = Compute<T>;
  CheckAllOffsets(p);
  for (int64_t i = Thread(); i < p.count * columns; i += Threads()) {
    const int64_t s = i / columns, c = i % columns;
    const int64_t begin = Begin(p, s), end = Begin(p, s + 1);
    if (begin >= end) {
      Store(y + i, C{});
      continue;
    }
    if constexpr (kFold == RaggedFold::kMax || kFold == RaggedFold::kMin) {
      C best = Load(x + begin * columns + c);
#pragma unroll 4
      for (int64_t t = begin + 1; t < end; ++t) {
        const C v = Load(x + t * columns + c);
        best = kFold == RaggedFold::kMax ? Larger(v, best) : Smaller(v, best);
      }
      Store(y + i, best);
    } else {
      Sum<T> sum = 0;
#pragma unroll 4
      for (int64_t t = begin; t < end; ++t) sum += static_cast<Sum<T>>(Load(x + t * columns + c));
      if constexpr (kFold == RaggedFold::kMean && std::is_integral_v<T>) {
        Store(y + i, static_cast<T>(static_cast<T>(sum) / static_cast<T>(end - begin)));
      } else if constexpr (kFold == RaggedFold::kMean) {
        Store(y + i, static_cast<C>(sum / static_cast<double>(end - begin)));
      } else {
        Store(y + i, static_cast<C>(sum));
      }
    }
  }
}

// Words per row; one thread per word.
template <typename Word>
__global__ void __launch_bounds__(kThreads)
    TokenKernel(int64_t index, Sequences p, int64_t words, const Word* x, Word* y) {
  CheckAllOffsets(p);
  for (int64_t i = Thread(); i < p.count * words; i += Threads()) {
    const int64_t s = i / words, w = i % words;
    const int64_t begin = Begin(p, s), length = Begin(p, s + 1) - begin;
    Word word{};
    if (length > 0) {
      const int64_t at = index < 0 ? index + length : index;
      if (at < 0 || at >= length) {
        atomicMax(p.fault, kFault);
      } else {
        word = x[(begin + at) * words + w];
      }
    }
    y[i] = word;
  }
}

// Like TokenKernel, for rows without elements: their indices are still checked.
__global__ void __launch_bounds__(kThreads) CheckTokensKernel(int64_t index, Sequences p) {
  CheckAllOffsets(p);
  for (int64_t s = Thread(); s < p.count; s += Threads()) {
    const int64_t length = Begin(p, s + 1) - Begin(p, s);
    const int64_t at = index < 0 ? index + length : index;
    if (length > 0 && (at < 0 || at >= length)) atomicMax(p.fault, kFault);
  }
}

// One warp per token.
template <typename Word>
__global__ void __launch_bounds__(kThreads)
    SpreadRowsKernel(Sequences p, int64_t words, const Word* x, Word* y) {
  CheckAllOffsets(p);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t token = Thread() / kWarp; token < p.tokens; token += Threads() / kWarp) {
    // The last sequence that begins at or before the token; the end of all counts as another one.
    int64_t low = 0, high = p.count + 1;
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      if (Begin(p, middle) <= token) {
        low = middle;
      } else {
        high = middle;
      }
    }
    const bool inside = low < p.count;
    for (int64_t w = lane; w < words; w += kWarp) {
      y[token * words + w] = inside ? x[low * words + w] : Word{};
    }
  }
}

// One thread per sequence and column; sequence `count` is the tokens after the last one.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    CumSumKernel(Sequences p, int64_t columns, bool exclusive, bool reverse, const T* x, T* y) {
  using C = Compute<T>;
  CheckAllOffsets(p);
  for (int64_t i = Thread(); i < (p.count + 1) * columns; i += Threads()) {
    const int64_t s = i / columns, c = i % columns;
    const int64_t begin = Begin(p, s), end = s == p.count ? p.tokens : Begin(p, s + 1);
    if (s == p.count) {
      for (int64_t t = begin; t < end; ++t) Store(y + t * columns + c, C{});
      continue;
    }
    Sum<T> sum = 0;
#pragma unroll 4
    for (int64_t k = 0; k < end - begin; ++k) {
      const int64_t at = (reverse ? end - 1 - k : begin + k) * columns + c;
      const auto v = static_cast<Sum<T>>(Load(x + at));
      Store(y + at, static_cast<C>(exclusive ? sum : sum + v));
      sum += v;
    }
  }
}

// Calls f.template operator()<Word>() with the widest word that divides rows and addresses.
template <typename F>
void ForWords(size_t row_bytes, const void* x, const void* y, F&& f) {
  const size_t bits = row_bytes | reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y);
  if (bits % 16 == 0) {
    f.template operator()<uint4>();
  } else {
    ForWidth(bits & (~bits + 1), std::forward<F>(f));
  }
}

}  // namespace

void LaunchRaggedReduce(DType dtype, RaggedFold fold, const Sequences& sequences, int64_t columns,
                        const void* x, void* y, cudaStream_t stream) {
  // At least one block, which checks the offsets.
  const int grid = GridFor(std::max<int64_t>(1, CeilDiv(sequences.count * columns, kThreads)));
  const auto launch = [&]<typename T>() {
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    switch (fold) {
      case RaggedFold::kSum:
        ReduceKernel<T, RaggedFold::kSum>
            <<<grid, kThreads, 0, stream>>>(sequences, columns, from, to);
        break;
      case RaggedFold::kMean:
        ReduceKernel<T, RaggedFold::kMean>
            <<<grid, kThreads, 0, stream>>>(sequences, columns, from, to);
        break;
      case RaggedFold::kMax:
        ReduceKernel<T, RaggedFold::kMax>
            <<<grid, kThreads, 0, stream>>>(sequences, columns, from, to);
        break;
      case RaggedFold::kMin:
        ReduceKernel<T, RaggedFold::kMin>
            <<<grid, kThreads, 0, stream>>>(sequences, columns, from, to);
        break;
    }
  };
  if (dtype == DType::kInt32) {
    launch.template operator()<int32_t>();
  } else if (dtype == DType::kInt64) {
    launch.template operator()<int64_t>();
  } else {
    ForFloats(dtype, launch);
  }
}

void LaunchRaggedToken(int64_t index, const Sequences& sequences, size_t row_bytes, const void* x,
                       void* y, cudaStream_t stream) {
  if (row_bytes == 0) {
    const int grid = GridFor(std::max<int64_t>(1, CeilDiv(sequences.count, kThreads)));
    CheckTokensKernel<<<grid, kThreads, 0, stream>>>(index, sequences);
    return;
  }
  ForWords(row_bytes, x, y, [&]<typename Word>() {
    const auto words = static_cast<int64_t>(row_bytes / sizeof(Word));
    const int grid = GridFor(std::max<int64_t>(1, CeilDiv(sequences.count * words, kThreads)));
    TokenKernel<<<grid, kThreads, 0, stream>>>(index, sequences, words, static_cast<const Word*>(x),
                                               static_cast<Word*>(y));
  });
}

void LaunchRaggedSpread(const Sequences& sequences, size_t row_bytes, const void* x, void* y,
                        cudaStream_t stream) {
  const int grid = GridFor(std::max<int64_t>(1, CeilDiv(sequences.tokens, kThreads / kWarp)));
  ForWords(row_bytes, x, y, [&]<typename Word>() {
    const auto words = static_cast<int64_t>(row_bytes / sizeof(Word));
    SpreadRowsKernel<<<grid, kThreads, 0, stream>>>(sequences, words, static_cast<const Word*>(x),
                                                    static_cast<Word*>(y));
  });
}

void LaunchRaggedCumSum(DType dtype, const Sequences& sequences, int64_t columns, bool exclusive,
                        bool reverse, const void* x, void* y, cudaStream_t stream) {
  const int grid =
      GridFor(std::max<int64_t>(1, CeilDiv((sequences.count + 1) * columns, kThreads)));
  ForNumbers(dtype, [&]<typename T>() {
    CumSumKernel<<<grid, kThreads, 0, stream>>>(sequences, columns, exclusive, reverse,
                                                static_cast<const T*>(x), static_cast<T*>(y));
  });
}

}  // namespace chairlift::cuda
