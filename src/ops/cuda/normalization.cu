// Softmax and normalisations. Rows that fit are read once and kept in registers: by a warp up to
// about 1024 elements, with several rows per block, and by a block above that. Other types, double
// and longer rows use a kernel that reads each row once per pass.
#include <algorithm>
#include <cmath>

#include "device/cuda/cuda_stream.h"
#include "ops/cuda/normalization.cuh"
#include "ops/cuda/types.cuh"

namespace chairlift::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kRowThreads = 128;    // of kernels with several rows per block
constexpr int kBlockThreads = 512;  // maximum, of kernels with one row per block
constexpr int kWideThreads = 256;   // of the kernels that read a row more than once
constexpr int64_t kMaxGrid = (int64_t{1} << 31) - 1;

int GridFor(int64_t blocks) { return static_cast<int>(std::min(blocks, kMaxGrid)); }
int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
bool Aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <typename T, int kN>
struct alignas(sizeof(T) * kN) Vector {
  T v[kN];
};
// Elements per 16-byte load.
template <typename T>
constexpr int kWide = 16 / static_cast<int>(sizeof(T));

__device__ __forceinline__ float Exp(float x) { return exp2f(x * 1.4426950408889634f); }
__device__ __forceinline__ double Exp(double x) { return exp(x); }
__device__ __forceinline__ float Log(float x) { return logf(x); }
__device__ __forceinline__ double Log(double x) { return log(x); }
__device__ __forceinline__ float Max(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ double Max(double a, double b) { return fmax(a, b); }
__device__ __forceinline__ float Sqrt(float x) { return sqrtf(x); }
__device__ __forceinline__ double Sqrt(double x) { return sqrt(x); }

struct SumOf {
  template <typename C>
  __device__ __forceinline__ C operator()(C a, C b) const {
    return a + b;
  }
};
struct MaxOf {
  template <typename C>
  __device__ __forceinline__ C operator()(C a, C b) const {
    return Max(a, b);
  }
};

// Over groups of kLanes lanes; the whole warp must call it.
template <int kLanes, typename C, typename F>
__device__ __forceinline__ C FoldLanes(C v, F fold) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    v = fold(v, __shfl_xor_sync(0xffffffffu, v, offset));
  }
  return v;
}

// Over the threads of a block, in whole warps; all must call it.
template <typename C, typename F>
__device__ __forceinline__ C FoldBlock(C v, F fold) {
  __shared__ C partial[32];
  v = FoldLanes<kWarp>(v, fold);
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = v;
  __syncthreads();
  v = partial[0];
  for (int w = 1; w < warps; ++w) v = fold(v, partial[w]);
  __syncthreads();  // before the next use of `partial`
  return v;
}

// The variance from the mean square about a first mean, and the mean of the remainder.
template <typename C>
__device__ __forceinline__ C VarianceOf(C about_mean, C rest) {
  const C variance = about_mean - rest * rest;
  return variance < C{0} ? C{0} : variance;
}

// How a row is distributed: kLanes threads per row, or (0) all threads of a block.
template <int kLanes, typename C, typename F>
__device__ __forceinline__ C FoldRow(C v, F fold) {
  if constexpr (kLanes == 0) {
    return FoldBlock(v, fold);
  } else {
    return FoldLanes<kLanes>(v, fold);
  }
}

template <typename C>
__device__ __forceinline__ C LoadAny(DType dtype, const void* p, int64_t i) {
  switch (dtype) {
    case DType::kDouble:
      return static_cast<C>(static_cast<const double*>(p)[i]);
    case DType::kFloat16:
      return static_cast<C>(Load(static_cast<const Half*>(p) + i));
    case DType::kBFloat16:
      return static_cast<C>(Load(static_cast<const BHalf*>(p) + i));
    default:
      return static_cast<C>(static_cast<const float*>(p)[i]);
  }
}
template <typename C>
__device__ __forceinline__ void StoreAny(DType dtype, void* p, int64_t i, C v) {
  switch (dtype) {
    case DType::kDouble:
      static_cast<double*>(p)[i] = static_cast<double>(v);
      break;
    case DType::kFloat16:
      Store(static_cast<Half*>(p) + i, static_cast<float>(v));
      break;
    case DType::kBFloat16:
      Store(static_cast<BHalf*>(p) + i, static_cast<float>(v));
      break;
    default:
      static_cast<float*>(p)[i] = static_cast<float>(v);
  }
}

// --- Layer normalisation -------------------------------------------------------------------------

// Which row of term t's values row `row` uses; −1: an index out of range.
__device__ __forceinline__ int64_t TermRow(const NormRows& p, int t, int64_t row) {
  const NormTerm& term = p.term[t];
  int64_t at = 0;
  if (p.dims == 0) {
    at = row * term.strides[0];
  } else {
    auto rest = static_cast<uint32_t>(row);
    for (int d = p.dims - 1; d >= 0; --d) {
      const auto dim = static_cast<uint32_t>(p.dim[d]);
      at += static_cast<int64_t>(rest % dim) * term.strides[d];
      rest /= dim;
    }
  }
  if (term.index_bytes == 0) return at;
  int64_t picked = term.index_bytes == 8 ? static_cast<const int64_t*>(term.index)[at]
                                         : static_cast<const int32_t*>(term.index)[at];
  if (picked < -term.bound || picked >= term.bound) {
    atomicMax(p.fault, static_cast<int>(DataFault::kIndexOutOfRange));
    return -1;
  }
  return picked < 0 ? picked + term.bound : picked;
}

// The number of blocks that a multiprocessor should hold so that enough loads are in flight: as
// many as the registers for a row's elements allow.
template <int kElements, bool kOneTerm>
constexpr int BlocksOfWarps() {
  if (kElements <= 8) return kOneTerm ? 12 : 8;
  return kElements <= 24 ? (kOneTerm ? 7 : 5) : 1;
}
template <int kVec, int kItems, int kLanes, bool kOneTerm>
constexpr int BlocksOf() {
  if (kLanes == 0) return kVec * kItems <= 8 ? 3 : 1;
  return kLanes == kWarp && kVec > 1 ? BlocksOfWarps<kVec * kItems, kOneTerm>() : 1;
}

// A row in registers: kItems vectors of kVec elements per thread, vector i · lanes + lane of the
// row. With a single term it needs fewer registers, so more rows are in flight.
template <typename T, int kVec, int kItems, int kLanes, bool kOneTerm>
__global__ void __launch_bounds__(kLanes == 0 ? kBlockThreads : kRowThreads,
                                  BlocksOf<kVec, kItems, kLanes, kOneTerm>())
    NormRowsKernel(const __grid_constant__ NormRows p) {
  using Vec = Vector<T, kVec>;
  const int lanes = kLanes == 0 ? static_cast<int>(blockDim.x) : kLanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int64_t rows_here = static_cast<int>(blockDim.x) / lanes;
  const int vectors = static_cast<int>(p.n / kVec);
  const float inv_n = 1.0f / static_cast<float>(p.n);
  // All threads of a warp share a row, so whole warps leave the loop.
  for (int64_t row = blockIdx.x * rows_here + static_cast<int>(threadIdx.x) / lanes; row < p.rows;
       row += gridDim.x * rows_here) {
    const auto from = [&](int t) -> const Vec* {
      const int64_t at = TermRow(p, t, row);
      if (at < 0) return nullptr;
      return reinterpret_cast<const Vec*>(static_cast<const T*>(p.term[t].values.data) + at * p.n);
    };
    // Both terms' loads are issued before the first is waited for.
    Vec first[kItems], second[kOneTerm ? 1 : kItems];
    const Vec* const a = from(0);
    const Vec* const b = !kOneTerm && p.terms > 1 ? from(1) : nullptr;
    if (a != nullptr) {
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const int v = lane + i * lanes;
        if (v < vectors) first[i] = a[v];
      }
    }
    if constexpr (!kOneTerm) {
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const int v = lane + i * lanes;
        if (b != nullptr && v < vectors) second[i] = b[v];
      }
    }
    float s[kItems][kVec];
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const bool inside = lane + i * lanes < vectors;
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        s[i][e] = inside && a != nullptr ? Load(&first[i].v[e]) : 0.0f;
        if constexpr (!kOneTerm) {
          if (inside && b != nullptr) s[i][e] += Load(&second[i].v[e]);
        }
      }
    }
    if (!kOneTerm && p.terms > 2) {
      const Vec* const c = from(2);
      if (c != nullptr) {
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
          const int v = lane + i * lanes;
          if (v >= vectors) continue;
          const Vec third = c[v];
#pragma unroll
          for (int e = 0; e < kVec; ++e) s[i][e] += Load(&third.v[e]);
        }
      }
    }
    if (p.sum != nullptr) {
      Vec* const to = reinterpret_cast<Vec*>(static_cast<T*>(p.sum) + row * p.n);
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const int v = lane + i * lanes;
        if (v >= vectors) continue;
        Vec out;
#pragma unroll
        for (int e = 0; e < kVec; ++e) Store(&out.v[e], s[i][e]);
        to[v] = out;
      }
    }
    float mean = 0;
    if (p.centred) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
#pragma unroll
        for (int e = 0; e < kVec; ++e) sum += s[i][e];
      }
      mean = FoldRow<kLanes>(sum, SumOf()) * inv_n;
    }
    float squares = 0;
    float rest = 0;  // error of the mean: its sums are rounded if values are large
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      if (lane + i * lanes >= vectors) continue;
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        s[i][e] -= mean;
        squares += s[i][e] * s[i][e];
        rest += s[i][e];
      }
    }
    rest = p.centred ? FoldRow<kLanes>(rest, SumOf()) * inv_n : 0.0f;
    const float variance = VarianceOf(FoldRow<kLanes>(squares, SumOf()) * inv_n, rest);
    const float inv_std = 1.0f / sqrtf(variance + static_cast<float>(p.epsilon));
    if (p.y != nullptr) {
      const Vec* const scale = static_cast<const Vec*>(p.scale.data);
      const Vec* const shift = static_cast<const Vec*>(p.shift.data);
      Vec* const to = reinterpret_cast<Vec*>(static_cast<T*>(p.y) + row * p.n);
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const int v = lane + i * lanes;
        if (v >= vectors) continue;
        const Vec by = scale[v];
        Vec out;
        if (shift != nullptr) {
          const Vec plus = shift[v];
#pragma unroll
          for (int e = 0; e < kVec; ++e) {
            Store(&out.v[e], (s[i][e] - rest) * inv_std * Load(&by.v[e]) + Load(&plus.v[e]));
          }
        } else {
#pragma unroll
          for (int e = 0; e < kVec; ++e) {
            Store(&out.v[e], (s[i][e] - rest) * inv_std * Load(&by.v[e]));
          }
        }
        to[v] = out;
      }
    }
    if (lane == 0) {
      if (p.mean != nullptr) p.mean[row] = mean + rest;
      if (p.inv_std != nullptr) p.inv_std[row] = inv_std;
    }
  }
}

// One block per row, for any length and types, in three passes.
template <typename C>
__global__ void __launch_bounds__(kWideThreads) NormAnyKernel(const __grid_constant__ NormRows p) {
  for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    int64_t base[kMaxNormTerms];
#pragma unroll
    for (int t = 0; t < kMaxNormTerms; ++t) {
      base[t] = -1;
      if (t < p.terms) {
        const int64_t at = TermRow(p, t, row);
        base[t] = at < 0 ? -1 : at * p.n;
      }
    }
    const auto at = [&](int64_t i) {
      C sum = 0;
#pragma unroll
      for (int t = 0; t < kMaxNormTerms; ++t) {
        if (base[t] >= 0) {
          sum += LoadAny<C>(p.term[t].values.dtype, p.term[t].values.data, base[t] + i);
        }
      }
      return sum;
    };
    C mean = 0;
    if (p.centred) {
      C sum = 0;
      for (int64_t i = threadIdx.x; i < p.n; i += kWideThreads) sum += at(i);
      mean = FoldBlock(sum, SumOf()) / static_cast<C>(p.n);
    }
    C squares = 0;
    C rest = 0;
    for (int64_t i = threadIdx.x; i < p.n; i += kWideThreads) {
      const C centred = at(i) - mean;
      squares += centred * centred;
      rest += centred;
    }
    rest = p.centred ? FoldBlock(rest, SumOf()) / static_cast<C>(p.n) : C{0};
    const C variance = VarianceOf(FoldBlock(squares, SumOf()) / static_cast<C>(p.n), rest);
    const C inv_std = C{1} / Sqrt(variance + static_cast<C>(p.epsilon));
    for (int64_t i = threadIdx.x; i < p.n; i += kWideThreads) {
      const C s = at(i);
      if (p.sum != nullptr) StoreAny(p.sum_dtype, p.sum, row * p.n + i, s);
      if (p.y == nullptr) continue;
      const C by = LoadAny<C>(p.scale.dtype, p.scale.data, i);
      const C plus = p.shift.data == nullptr ? C{0} : LoadAny<C>(p.shift.dtype, p.shift.data, i);
      StoreAny(p.y_dtype, p.y, row * p.n + i, (s - mean - rest) * inv_std * by + plus);
    }
    if (threadIdx.x == 0) {
      if (p.mean != nullptr) p.mean[row] = static_cast<float>(mean + rest);
      if (p.inv_std != nullptr) p.inv_std[row] = static_cast<float>(inv_std);
    }
  }
}

template <typename T, int kVec, int kItems>
void LaunchNormWarps(const NormRows& p, cudaStream_t stream) {
  constexpr int kRows = kRowThreads / kWarp;
  const auto grid = GridFor(CeilDiv(p.rows, kRows));
  if (p.terms == 1) {
    NormRowsKernel<T, kVec, kItems, kWarp, true><<<grid, kRowThreads, 0, stream>>>(p);
  } else {
    NormRowsKernel<T, kVec, kItems, kWarp, false><<<grid, kRowThreads, 0, stream>>>(p);
  }
}
template <typename T, int kItems>
void LaunchNormBlocks(const NormRows& p, int64_t vectors, cudaStream_t stream) {
  const auto threads = static_cast<int>(CeilDiv(CeilDiv(vectors, kItems), kWarp) * kWarp);
  if (p.terms == 1) {
    NormRowsKernel<T, kWide<T>, kItems, 0, true><<<GridFor(p.rows), threads, 0, stream>>>(p);
  } else {
    NormRowsKernel<T, kWide<T>, kItems, 0, false><<<GridFor(p.rows), threads, 0, stream>>>(p);
  }
}

// Returns whether a kernel that keeps rows in registers was launched.
template <typename T>
bool LaunchNormInRegisters(const NormRows& p, cudaStream_t stream) {
  bool wide = p.n % kWide<T> == 0 && Aligned16(p.scale.data) && Aligned16(p.shift.data) &&
              Aligned16(p.y) && Aligned16(p.sum);
  for (int t = 0; t < p.terms; ++t) wide = wide && Aligned16(p.term[t].values.data);
  if (!wide) {
    if (p.n <= kWarp) {
      LaunchNormWarps<T, 1, 1>(p, stream);
    } else if (p.n <= 4 * kWarp) {
      LaunchNormWarps<T, 1, 4>(p, stream);
    } else if (p.n <= 16 * kWarp) {
      LaunchNormWarps<T, 1, 16>(p, stream);
    } else if (p.n <= 32 * kWarp) {
      LaunchNormWarps<T, 1, 32>(p, stream);
    } else {
      return false;
    }
    return true;
  }
  constexpr int kVec = kWide<T>;
  const int64_t vectors = p.n / kVec;
  if (vectors <= kWarp) {
    LaunchNormWarps<T, kVec, 1>(p, stream);
  } else if (vectors <= 2 * kWarp) {
    LaunchNormWarps<T, kVec, 2>(p, stream);
  } else if (vectors <= 3 * kWarp) {
    LaunchNormWarps<T, kVec, 3>(p, stream);
  } else if (vectors <= 4 * kWarp) {
    LaunchNormWarps<T, kVec, 4>(p, stream);
  } else if (kVec == 4 && vectors <= 6 * kWarp) {
    if constexpr (kVec == 4) LaunchNormWarps<T, kVec, 6>(p, stream);
  } else if (kVec == 4 && vectors <= 8 * kWarp) {
    if constexpr (kVec == 4) LaunchNormWarps<T, kVec, 8>(p, stream);
  } else if (vectors <= 2 * kBlockThreads) {
    LaunchNormBlocks<T, 2>(p, vectors, stream);
  } else if (vectors <= 4 * kBlockThreads) {
    LaunchNormBlocks<T, 4>(p, vectors, stream);
  } else {
    return false;
  }
  return true;
}

}  // namespace

void LaunchLayerNorm(const NormRows& p, cudaStream_t stream) {
  if (p.rows == 0) return;
  const DType dtype = p.term[0].values.dtype;
  bool same = p.n > 0 && p.scale.dtype == dtype;
  if (p.shift.data != nullptr) same = same && p.shift.dtype == dtype;
  if (p.y != nullptr) same = same && p.y_dtype == dtype;
  if (p.sum != nullptr) same = same && p.sum_dtype == dtype;
  for (int t = 1; t < p.terms; ++t) same = same && p.term[t].values.dtype == dtype;
  if (same) {
    bool done = false;
    switch (dtype) {
      case DType::kFloat:
        done = LaunchNormInRegisters<float>(p, stream);
        break;
      case DType::kFloat16:
        done = LaunchNormInRegisters<Half>(p, stream);
        break;
      case DType::kBFloat16:
        done = LaunchNormInRegisters<BHalf>(p, stream);
        break;
      default:
        break;
    }
    if (done) return;
  }
  if (dtype == DType::kDouble) {
    NormAnyKernel<double><<<GridFor(p.rows), kWideThreads, 0, stream>>>(p);
  } else {
    NormAnyKernel<float><<<GridFor(p.rows), kWideThreads, 0, stream>>>(p);
  }
}

namespace {

template <typename T>
__global__ void SpreadKernel(const __grid_constant__ SpreadMap map, const T* x, T* y) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < map.n;
       i += step) {
    int64_t rest = i, at = 0;
    for (int d = map.dims - 1; d >= 0; --d) {
      at += rest % map.dim[d] * map.stride[d];
      rest /= map.dim[d];
    }
    y[i] = x[at];
  }
}

}  // namespace

void LaunchSpread(const SpreadMap& map, size_t element_bytes, const void* x, void* y,
                  cudaStream_t stream) {
  if (map.n == 0) return;
  ForWidth(element_bytes, [&]<typename T>() {
    SpreadKernel<T><<<GridFor(CeilDiv(map.n, kWideThreads)), kWideThreads, 0, stream>>>(
        map, static_cast<const T*>(x), static_cast<T*>(y));
  });
}

// --- Softmax -------------------------------------------------------------------------------------

namespace {

// Rows in registers as in NormRowsKernel; kLanes below 32: several rows per warp.
template <typename T, int kVec, int kItems, int kLanes>
__global__ void __launch_bounds__(kLanes == 0 ? kBlockThreads : kRowThreads)
    SoftmaxRowsKernel(int64_t rows, int n, bool log, const T* x, T* y) {
  using Vec = Vector<T, kVec>;
  constexpr float kNone = -INFINITY;
  const int lanes = kLanes == 0 ? static_cast<int>(blockDim.x) : kLanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int64_t rows_here = static_cast<int>(blockDim.x) / lanes;
  const int vectors = n / kVec;
  // Blocks leave the loop together: the lanes of a warp may have different rows.
  for (int64_t first = blockIdx.x * rows_here; first < rows; first += gridDim.x * rows_here) {
    const int64_t row = first + static_cast<int>(threadIdx.x) / lanes;
    const int mine = row < rows ? vectors : 0;
    const Vec* const from = reinterpret_cast<const Vec*>(x + row * n);
    Vec raw[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int v = lane + i * lanes;
      if (v < mine) raw[i] = from[v];
    }
    float s[kItems][kVec];
    float max = kNone;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const bool inside = lane + i * lanes < mine;
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        s[i][e] = inside ? Load(&raw[i].v[e]) : kNone;
        max = fmaxf(max, s[i][e]);
      }
    }
    max = FoldRow<kLanes>(max, MaxOf());
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      if (lane + i * lanes >= mine) continue;
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        const float centred = s[i][e] - max;
        const float power = Exp(centred);
        sum += power;
        s[i][e] = log ? centred : power;
      }
    }
    sum = FoldRow<kLanes>(sum, SumOf());
    const float by = log ? 1.0f : 1.0f / sum;
    const float minus = log ? logf(sum) : 0.0f;
    Vec* const to = reinterpret_cast<Vec*>(y + row * n);
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int v = lane + i * lanes;
      if (v >= mine) continue;
      Vec out;
#pragma unroll
      for (int e = 0; e < kVec; ++e) Store(&out.v[e], s[i][e] * by - minus);
      to[v] = out;
    }
  }
}

// The maximum of a thread's elements, and the sum of the exponentials relative to it.
template <typename C>
struct Running {
  C max = static_cast<C>(-INFINITY);
  C sum = 0;
  __device__ __forceinline__ void Add(C x) {
    constexpr C kNone = static_cast<C>(-INFINITY);
    if (x == kNone && max == kNone) return;
    const C larger = Max(max, x);
    sum = sum * Exp(max - larger) + Exp(x - larger);
    max = larger;
  }
};

// One block per row of any length, in two passes.
template <typename T>
__global__ void __launch_bounds__(kWideThreads)
    SoftmaxLongKernel(int64_t rows, int64_t n, bool log, const T* x, T* y) {
  using C = Compute<T>;
  constexpr C kNone = static_cast<C>(-INFINITY);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const from = x + row * n;
    T* const to = y + row * n;
    Running<C> all;
    for (int64_t i = threadIdx.x; i < n; i += kWideThreads) all.Add(Load(from + i));
    const C max = FoldBlock(all.max, MaxOf());
    // A thread that has only seen −∞ has no sum; NaN stays NaN.
    const C part = all.max == kNone ? all.sum : all.sum * Exp(all.max - max);
    const C sum = FoldBlock(part, SumOf());
    const C log_sum = Log(sum);
    for (int64_t i = threadIdx.x; i < n; i += kWideThreads) {
      const C centred = Load(from + i) - max;
      Store(to + i, log ? centred - log_sum : Exp(centred) / sum);
    }
  }
}

// One thread per line; adjacent threads have adjacent lines.
template <typename T>
__global__ void __launch_bounds__(kWideThreads)
    SoftmaxColumnsKernel(int64_t lines, int64_t n, int64_t inner, bool log, const T* x, T* y) {
  using C = Compute<T>;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWideThreads;
  for (int64_t line = static_cast<int64_t>(blockIdx.x) * kWideThreads + threadIdx.x; line < lines;
       line += step) {
    const int64_t start = line / inner * n * inner + line % inner;
    Running<C> all;
#pragma unroll 4
    for (int64_t i = 0; i < n; ++i) all.Add(Load(x + start + i * inner));
    const C log_sum = log ? Log(all.sum) : C{0};
#pragma unroll 4
    for (int64_t i = 0; i < n; ++i) {
      const C centred = Load(x + start + i * inner) - all.max;
      Store(y + start + i * inner, log ? centred - log_sum : Exp(centred) / all.sum);
    }
  }
}

template <typename T, int kVec, int kItems, int kLanes>
void LaunchSoftmaxLanes(int64_t rows, int64_t n, bool log, const T* x, T* y, cudaStream_t stream) {
  constexpr int kRows = kRowThreads / kLanes;
  SoftmaxRowsKernel<T, kVec, kItems, kLanes>
      <<<GridFor(CeilDiv(rows, kRows)), kRowThreads, 0, stream>>>(rows, static_cast<int>(n), log, x,
                                                                  y);
}
template <typename T, int kItems>
void LaunchSoftmaxBlocks(int64_t rows, int64_t n, bool log, const T* x, T* y, cudaStream_t stream) {
  const int64_t vectors = n / kWide<T>;
  const auto threads = static_cast<int>(CeilDiv(CeilDiv(vectors, kItems), kWarp) * kWarp);
  SoftmaxRowsKernel<T, kWide<T>, kItems, 0>
      <<<GridFor(rows), threads, 0, stream>>>(rows, static_cast<int>(n), log, x, y);
}

template <typename T>
bool LaunchSoftmaxInRegisters(int64_t rows, int64_t n, bool log, const T* x, T* y,
                              cudaStream_t stream) {
  constexpr int kVec = kWide<T>;
  if (n % kVec != 0 || !Aligned16(x) || !Aligned16(y)) {
    if (n <= 8) {
      LaunchSoftmaxLanes<T, 1, 1, 8>(rows, n, log, x, y, stream);
    } else if (n <= kWarp) {
      LaunchSoftmaxLanes<T, 1, 4, 8>(rows, n, log, x, y, stream);
    } else if (n <= 4 * kWarp) {
      LaunchSoftmaxLanes<T, 1, 4, kWarp>(rows, n, log, x, y, stream);
    } else if (n <= 16 * kWarp) {
      LaunchSoftmaxLanes<T, 1, 16, kWarp>(rows, n, log, x, y, stream);
    } else if (n <= 32 * kWarp) {
      LaunchSoftmaxLanes<T, 1, 32, kWarp>(rows, n, log, x, y, stream);
    } else {
      return false;
    }
    return true;
  }
  const int64_t vectors = n / kVec;
  if (vectors <= 8) {
    LaunchSoftmaxLanes<T, kVec, 1, 8>(rows, n, log, x, y, stream);
  } else if (vectors <= 16) {
    LaunchSoftmaxLanes<T, kVec, 2, 8>(rows, n, log, x, y, stream);
  } else if (vectors <= 32) {
    LaunchSoftmaxLanes<T, kVec, 1, kWarp>(rows, n, log, x, y, stream);
  } else if (vectors <= 2 * kWarp) {
    LaunchSoftmaxLanes<T, kVec, 2, kWarp>(rows, n, log, x, y, stream);
  } else if (vectors <= 3 * kWarp) {
    LaunchSoftmaxLanes<T, kVec, 3, kWarp>(rows, n, log, x, y, stream);
  } else if (vectors <= 4 * kWarp) {
    LaunchSoftmaxLanes<T, kVec, 4, kWarp>(rows, n, log, x, y, stream);
  } else if (kVec == 4 && vectors <= 8 * kWarp) {
    if constexpr (kVec == 4) LaunchSoftmaxLanes<T, kVec, 8, kWarp>(rows, n, log, x, y, stream);
  } else if (vectors <= 2 * kBlockThreads) {
    LaunchSoftmaxBlocks<T, 2>(rows, n, log, x, y, stream);
  } else if (vectors <= 4 * kBlockThreads) {
    LaunchSoftmaxBlocks<T, 4>(rows, n, log, x, y, stream);
  } else {
    return false;
  }
  return true;
}

}  // namespace

void LaunchSoftmax(DType dtype, const SoftmaxShape& shape, const void* x, void* y,
                   cudaStream_t stream) {
  const int64_t lines = shape.outer * shape.inner;
  if (lines == 0 || shape.n == 0) return;
  ForFloats(dtype, [&]<typename T>() {
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    if (shape.inner > 1) {
      SoftmaxColumnsKernel<T><<<GridFor(CeilDiv(lines, kWideThreads)), kWideThreads, 0, stream>>>(
          lines, shape.n, shape.inner, shape.log, from, to);
      return;
    }
    if constexpr (!std::is_same_v<T, double>) {
      if (LaunchSoftmaxInRegisters<T>(lines, shape.n, shape.log, from, to, stream)) return;
    }
    SoftmaxLongKernel<T>
        <<<GridFor(lines), kWideThreads, 0, stream>>>(lines, shape.n, shape.log, from, to);
  });
}

// --- By channel ----------------------------------------------------------------------------------

namespace {

__global__ void BatchNormFactorsKernel(BatchNormShape shape, NormOperand scale, NormOperand bias,
                                       NormOperand mean, NormOperand variance, double* factors) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= shape.channels) return;
  factors[c] = LoadAny<double>(scale.dtype, scale.data, c) /
               sqrt(LoadAny<double>(variance.dtype, variance.data, c) + shape.epsilon);
  factors[shape.channels + c] = LoadAny<double>(bias.dtype, bias.data, c);
  factors[2 * shape.channels + c] = LoadAny<double>(mean.dtype, mean.data, c);
}

// A vector belongs to one channel or, if plane is 1, to kVec adjacent ones, unless kVec is 1.
template <typename T, int kVec>
__global__ void __launch_bounds__(kWideThreads)
    AffineKernel(int64_t vectors, int64_t channels, int64_t plane, const double* factors,
                 const T* x, T* y) {
  using C = Compute<T>;
  using Vec = Vector<T, kVec>;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWideThreads;
  for (int64_t v = static_cast<int64_t>(blockIdx.x) * kWideThreads + threadIdx.x; v < vectors;
       v += step) {
    const Vec in = reinterpret_cast<const Vec*>(x)[v];
    const int64_t channel = v * kVec / plane % channels;
    C by = static_cast<C>(factors[channel]);
    C plus = static_cast<C>(factors[channels + channel]);
    C mean = static_cast<C>(factors[2 * channels + channel]);
    Vec out;
#pragma unroll
    for (int e = 0; e < kVec; ++e) {
      if (e > 0 && plane == 1) {
        by = static_cast<C>(factors[channel + e]);
        plus = static_cast<C>(factors[channels + channel + e]);
        mean = static_cast<C>(factors[2 * channels + channel + e]);
      }
      Store(&out.v[e], by * (Load(&in.v[e]) - mean) + plus);
    }
    reinterpret_cast<Vec*>(y)[v] = out;
  }
}

// One block per group, in three passes.
constexpr int kGroupThreads = 1024;
template <typename T>
__global__ void __launch_bounds__(kGroupThreads)
    GroupNormKernel(GroupNormShape g, const T* all, NormOperand scale, NormOperand bias, T* out) {
  using C = Compute<T>;
  const int64_t size = g.channels * g.plane;
  for (int64_t unit = blockIdx.x; unit < g.items * g.groups; unit += gridDim.x) {
    const T* const x = all + unit * size;
    T* const y = out + unit * size;
    const C from = Load(x);  // so that the mean of equal elements is exactly their value
    C sum = 0;
    for (int64_t i = threadIdx.x; i < size; i += blockDim.x) sum += Load(x + i) - from;
    const C mean = from + FoldBlock(sum, SumOf()) / static_cast<C>(size);
    C squares = 0;
    C rest = 0;
    for (int64_t i = threadIdx.x; i < size; i += blockDim.x) {
      const C centred = Load(x + i) - mean;
      squares += centred * centred;
      rest += centred;
    }
    rest = FoldBlock(rest, SumOf()) / static_cast<C>(size);
    const C variance = VarianceOf(FoldBlock(squares, SumOf()) / static_cast<C>(size), rest);
    const C inv_std = C{1} / Sqrt(variance + static_cast<C>(g.epsilon));
    const int64_t first = unit % g.groups * g.channels;
    for (int64_t i = threadIdx.x; i < size; i += blockDim.x) {
      const int64_t channel = first + i / g.plane;
      const C by = inv_std * LoadAny<C>(scale.dtype, scale.data, channel);
      Store(y + i, (Load(x + i) - mean - rest) * by + LoadAny<C>(bias.dtype, bias.data, channel));
    }
  }
}

}  // namespace

void LaunchBatchNorm(DType dtype, const BatchNormShape& shape, const void* x,
                     const NormOperand& scale, const NormOperand& bias, const NormOperand& mean,
                     const NormOperand& variance, void* scratch, void* y, cudaStream_t stream) {
  const int64_t size = shape.items * shape.channels * shape.plane;
  if (size == 0) return;
  auto* factors = static_cast<double*>(scratch);
  BatchNormFactorsKernel<<<GridFor(CeilDiv(shape.channels, kWideThreads)), kWideThreads, 0,
                           stream>>>(shape, scale, bias, mean, variance, factors);
  ForFloats(dtype, [&]<typename T>() {
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    constexpr int kVec = kWide<T>;
    const bool wide =
        (shape.plane % kVec == 0 || (shape.plane == 1 && shape.channels % kVec == 0)) &&
        Aligned16(x) && Aligned16(y);
    const int64_t vectors = wide ? size / kVec : size;
    const int grid = GridFor(CeilDiv(vectors, kWideThreads));
    if (wide) {
      AffineKernel<T, kVec><<<grid, kWideThreads, 0, stream>>>(vectors, shape.channels, shape.plane,
                                                               factors, from, to);
    } else {
      AffineKernel<T, 1><<<grid, kWideThreads, 0, stream>>>(vectors, shape.channels, shape.plane,
                                                            factors, from, to);
    }
  });
}

void LaunchGroupNorm(DType dtype, const GroupNormShape& shape, const void* x,
                     const NormOperand& scale, const NormOperand& bias, void* y,
                     cudaStream_t stream) {
  const int64_t size = shape.channels * shape.plane;
  const int64_t units = shape.items * shape.groups;
  if (units == 0 || size == 0) return;
  const auto threads =
      static_cast<int>(std::clamp<int64_t>(CeilDiv(size, 4 * kWarp) * kWarp, kWarp, kGroupThreads));
  ForFloats(dtype, [&]<typename T>() {
    GroupNormKernel<T><<<GridFor(units), threads, 0, stream>>>(shape, static_cast<const T*>(x),
                                                               scale, bias, static_cast<T*>(y));
  });
}

// --- Over lines and axes -------------------------------------------------------------------------

namespace {

// kLanes threads per line: a warp if lines are contiguous, else one.
template <typename T, int kLanes>
__global__ void __launch_bounds__(kWideThreads) LpNormKernel(LpNormShape shape, const T* x, T* y) {
  // sums of squares overflow in float but not in double.
  using C = double;
  const int64_t lines = shape.outer * shape.inner;
  const int64_t step = static_cast<int64_t>(gridDim.x) * (kWideThreads / kLanes);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  for (int64_t line = static_cast<int64_t>(blockIdx.x) * (kWideThreads / kLanes) +
                      static_cast<int>(threadIdx.x) / kLanes;
       line < lines; line += step) {
    const int64_t start = line / shape.inner * shape.n * shape.inner + line % shape.inner;
    C norm = 0;
    for (int64_t i = lane; i < shape.n; i += kLanes) {
      const auto v = static_cast<C>(Load(x + start + i * shape.inner));
      norm += shape.squares ? v * v : fabs(v);
    }
    norm = FoldLanes<kLanes>(norm, SumOf());
    if (shape.squares) norm = sqrt(norm);
    const auto by = static_cast<Compute<T>>(norm == 0 ? C{0} : 1 / norm);
    for (int64_t i = lane; i < shape.n; i += kLanes) {
      Store(y + start + i * shape.inner, Load(x + start + i * shape.inner) * by);
    }
  }
}

__device__ __forceinline__ int64_t PlaceOf(int64_t at, int dims, const int64_t* dim,
                                           const int64_t* stride) {
  int64_t place = 0;
  for (int d = dims - 1; d >= 0; --d) {
    place += at % dim[d] * stride[d];
    at /= dim[d];
  }
  return place;
}

// One block per group, in three passes.
template <typename T>
__global__ void __launch_bounds__(kWideThreads)
    MeanVarianceKernel(const __grid_constant__ MeanVarianceShape p, const T* x, T* y) {
  for (int64_t group = blockIdx.x; group < p.groups; group += gridDim.x) {
    const int64_t start = PlaceOf(group, p.kept, p.kept_dim, p.kept_stride);
    const auto place = [&](int64_t i) {
      return start + PlaceOf(i, p.reduced, p.reduced_dim, p.reduced_stride);
    };
    double sum = 0;
    for (int64_t i = threadIdx.x; i < p.count; i += kWideThreads) {
      sum += static_cast<double>(Load(x + place(i)));
    }
    const double mean = FoldBlock(sum, SumOf()) / static_cast<double>(p.count);
    double squares = 0;
    for (int64_t i = threadIdx.x; i < p.count; i += kWideThreads) {
      const double centred = static_cast<double>(Load(x + place(i))) - mean;
      squares += centred * centred;
    }
    const double variance = FoldBlock(squares, SumOf()) / static_cast<double>(p.count);
    const double by = 1 / (sqrt(variance) + 1e-9);
    for (int64_t i = threadIdx.x; i < p.count; i += kWideThreads) {
      const int64_t at = place(i);
      Store(y + at, static_cast<Compute<T>>((static_cast<double>(Load(x + at)) - mean) * by));
    }
  }
}

}  // namespace

void LaunchLpNorm(DType dtype, const LpNormShape& shape, const void* x, void* y,
                  cudaStream_t stream) {
  const int64_t lines = shape.outer * shape.inner;
  if (lines == 0 || shape.n == 0) return;
  ForFloats(dtype, [&]<typename T>() {
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    if (shape.inner == 1) {
      const int grid = GridFor(CeilDiv(lines, kWideThreads / kWarp));
      LpNormKernel<T, kWarp><<<grid, kWideThreads, 0, stream>>>(shape, from, to);
    } else {
      const int grid = GridFor(CeilDiv(lines, kWideThreads));
      LpNormKernel<T, 1><<<grid, kWideThreads, 0, stream>>>(shape, from, to);
    }
  });
}

void LaunchMeanVariance(DType dtype, const MeanVarianceShape& shape, const void* x, void* y,
                        cudaStream_t stream) {
  if (shape.groups == 0 || shape.count == 0) return;
  ForFloats(dtype, [&]<typename T>() {
    MeanVarianceKernel<T><<<GridFor(shape.groups), kWideThreads, 0, stream>>>(
        shape, static_cast<const T*>(x), static_cast<T*>(y));
  });
}

}  // namespace chairlift::cuda
