// Attention over packed sequences. A block computes a tile of queries of one head against the keys
// of their sequence, tile after tile, and corrects the running maximum and sum of each query (Dao
// et al., "FlashAttention", 2022, §3.1).
//
// Only the device knows where sequences begin. Let a = floor(offset(s) / kTile) + s be the first
// slot of sequence s. Its ceil(length / kTile) tiles of queries always fit before the slot of
// sequence s + 1. So floor(tokens / kTile) + sequences + 1 slots are enough for all, and each block
// finds its sequence by a search over the offsets. Tokens after the last sequence count as another
// sequence, which is filled with zeros. Blocks of slots without queries end at once.
//
// float16 and bfloat16 with sizes in multiples of 8 use tensor cores. Everything else up to
// kMaxSize uses multiply-adds in float32. Larger heads use one warp per query.
#include <algorithm>
#include <cmath>

#include "device/cuda/cuda_stream.h"
#include "ops/cuda/ragged.cuh"
#include "ops/cuda/ragged_attention.cuh"
#include "ops/cuda/types.cuh"

namespace chairlift::cuda {
namespace {

constexpr int kTile = 64;      // queries, and keys, per tile
constexpr int kMaxSize = 128;  // columns and values of the tiled kernels
constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr float kLog2E = 1.4426950408889634f;

// The work of a block.
struct Place {
  int64_t begin;  // the sequence's first token
  int length;     // its tokens
  int first;      // the tile's first query; at least `length` if there is none
  int head;
  bool zeros;  // tokens after the last sequence
};

__device__ __forceinline__ int64_t SlotOf(const RaggedAttentionArgs& p, int64_t s) {
  return OffsetAt(p.offsets, s, p.tokens) / kTile + s;
}

// Called by whole warps.
__device__ __forceinline__ Place FindPlace(const RaggedAttentionArgs& p) {
  const int64_t slot = blockIdx.x / p.heads;
  Place place;
  place.head = static_cast<int>(blockIdx.x - slot * p.heads);
  // The last s of [0, sequences] whose slot is at or before this one, 32 at a time. For any
  // offsets, s stays in that range.
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int64_t low = 0, high = p.sequences + 1;
  while (high - low > 1) {
    const int64_t step = (high - low + kWarp - 1) / kWarp;
    const int64_t probe = low + lane * step;
    const bool before = lane == 0 || (probe < high && SlotOf(p, probe) <= slot);
    const int last = kWarp - 1 - __clz(static_cast<int>(__ballot_sync(kAllLanes, before)));
    low += last * step;
    high = low + step < high ? low + step : high;
  }
  place.begin = OffsetAt(p.offsets, low, p.tokens);
  place.zeros = low == p.sequences;
  const int64_t end = place.zeros ? p.tokens : OffsetAt(p.offsets, low + 1, p.tokens);
  place.length = end > place.begin ? static_cast<int>(end - place.begin) : 0;
  const int64_t first = (slot - SlotOf(p, low)) * kTile;
  place.first = first < 0 || first >= place.length ? place.length : static_cast<int>(first);
  if (p.points > 0 && !place.zeros && place.length > p.points / 2 + 1) {
    atomicMax(p.fault, static_cast<int>(DataFault::kIndexOutOfRange));
  }
  return place;
}

// Run by the first block only.
__device__ __forceinline__ void CheckAllOffsets(const RaggedAttentionArgs& p) {
  if (blockIdx.x != 0) return;
  CheckOffsets(p.offsets, p.sequences, p.tokens, p.fault,
               static_cast<int>(DataFault::kIndexOutOfRange));
}

template <typename T>
__device__ void FillZeros(const RaggedAttentionArgs& p, const Place& place) {
  const int queries = min(kTile, place.length - place.first);
  const auto size = static_cast<int>(p.values);
  T* const out = static_cast<T*>(p.out);
  for (int i = static_cast<int>(threadIdx.x); i < queries * size;
       i += static_cast<int>(blockDim.x)) {
    const int64_t token = place.begin + place.first + i / size;
    Store(out + (token * p.heads + place.head) * p.values + i % size, 0.0f);
  }
}

// Biases times log2(e) for the keys of a tile. By distance: entry kTile − 1 + j − i is for query i
// and key j of the tile. `biases` has 2 · kTile entries.
template <typename T>
__device__ __forceinline__ void LoadBiases(const RaggedAttentionArgs& p, const Place& place,
                                           int key, float* biases) {
  const T* const bias = static_cast<const T*>(p.bias);
  for (int i = static_cast<int>(threadIdx.x); i < 2 * kTile; i += static_cast<int>(blockDim.x)) {
    float b = 0;
    if (p.points > 0) {
      int64_t at = p.points / 2 + (key - place.first) + (i - (kTile - 1));
      at = at < 0 ? 0 : at >= p.points ? p.points - 1 : at;
      b = Load(bias + place.head * p.points + at);
    } else if (i < kTile && key + i < place.length) {
      b = Load(bias + place.begin + key + i);
    }
    biases[i] = b * kLog2E;
  }
}

// The score of query `row` and key `column` of the tiles, in powers of 2. For FmaKernel.
__device__ __forceinline__ float Score(const RaggedAttentionArgs& p, float product,
                                       const float* biases, int row, int column) {
  float score = p.softcap == 0 ? product * (p.scale * kLog2E)
                               : p.softcap * kLog2E * tanhf(product * p.scale / p.softcap);
  if (p.bias != nullptr) {
    score += biases[p.points > 0 ? kTile - 1 + column - row : column];
  }
  return score;
}

__device__ __forceinline__ float InverseSum(const RaggedAttentionArgs& p, float sum) {
  if (sum == 0) return p.zeros_for_none ? 0.0f : NAN;
  return 1.0f / sum;
}

// The running maximum of a query after a tile with maximum `most`, and the factor by which earlier
// sums shrink. For a query without any key so far, `base` is 0, so that its powers are 0.
struct Raised {
  float max, base, shrink;
};
__device__ __forceinline__ Raised Raise(float max, float most) {
  Raised raised;
  raised.max = fmaxf(max, most);
  raised.base = raised.max == -INFINITY ? 0.0f : raised.max;
  raised.shrink = exp2f(max - raised.base);
  return raised;
}

// --- Tensor cores --------------------------------------------------------------------------------

constexpr int kMmaThreads = 128;  // one warp per 16 queries

__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
// Copies 16 bytes; zeros if not `inside`.
__device__ __forceinline__ void CopyAsync(uint32_t to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from),
               "r"(inside ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}
template <int kLeft>
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kLeft) : "memory");
}
__device__ __forceinline__ void LoadMatrices(uint32_t (&r)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void LoadTransposed(uint32_t (&r)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}
// c [16, 8] += a [16, 16] · b [16, 8].
template <typename T>
__device__ __forceinline__ void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1) {
  if constexpr (std::is_same_v<T, Half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}
__device__ __forceinline__ float FastPower2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// The lower half is a.
template <typename T>
__device__ __forceinline__ uint32_t PackPair(float a, float b) {
  uint32_t bits;
  if constexpr (std::is_same_v<T, Half>) {
    const __half2 pair = __floats2half2_rn(a, b);
    bits = *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
    bits = *reinterpret_cast<const uint32_t*>(&pair);
  }
  return bits;
}

// The byte offset of 8 elements (16 bytes, a chunk) of a row in a tile of kSize columns. Chunks are
// permuted so that the same chunk of 8 rows, which ldmatrix reads, is in different banks.
template <int kSize>
__device__ __forceinline__ uint32_t ChunkAt(int row, int chunk) {
  constexpr int kChunks = kSize / 8;
  const int by = kChunks >= 8 ? row & 7 : (row >> 1) & 3;
  return static_cast<uint32_t>((row * kChunks + (chunk ^ by)) * 16);
}

// Starts the copy of `rows` rows of `size` elements, `stride` apart, into a tile. The rest of the
// tile becomes zero.
template <typename T, int kSize>
__device__ __forceinline__ void CopyTile(uint32_t to, const T* from, int rows, int size,
                                         int64_t stride) {
  constexpr int kChunks = kSize / 8;
  constexpr int kRows = kMmaThreads / kChunks;  // at the same time
  const int first = static_cast<int>(threadIdx.x) / kChunks;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  const T* at = from + first * stride + chunk * 8;
#pragma unroll
  for (int i = 0; i < kTile / kRows; ++i) {
    const int row = first + i * kRows;
    const bool inside = row < rows && chunk * 8 < size;
    CopyAsync(to + ChunkAt<kSize>(row, chunk), inside ? at : from, inside);
    at += kRows * stride;
  }
}

template <int kSize>
constexpr int kMmaSharedBytes = 3 * kTile* kSize * 2;  // Q, K and V

// columns and values are at most kSize and multiples of 8; q, k, v and out are 16-byte aligned.
template <typename T, int kSize>
__global__ void __launch_bounds__(kMmaThreads, kSize > 64 ? 2 : 4)
    MmaKernel(const __grid_constant__ RaggedAttentionArgs p) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ float biases[2 * kTile];
  CheckAllOffsets(p);
  const Place place = FindPlace(p);
  if (place.first >= place.length) return;
  if (place.zeros) {
    FillZeros<T>(p, place);
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16;  // the warp's first query
  const int queries = min(kTile, place.length - place.first);
  const int keys_seen = p.causal ? min(place.length, place.first + kTile) : place.length;
  const bool works = warp_row < queries;
  const uint32_t q_tile = SharedAddress(shared);
  const uint32_t k_tile = q_tile + kTile * kSize * 2;
  const uint32_t v_tile = k_tile + kTile * kSize * 2;
  const auto columns = static_cast<int>(p.columns);
  const auto values = static_cast<int>(p.values);
  const int64_t kv_head = place.head / (p.heads / p.kv_heads);
  const int64_t q_stride = p.heads * p.columns;
  const int64_t k_stride = p.kv_heads * p.columns;
  const int64_t v_stride = p.kv_heads * p.values;
  const T* const q =
      static_cast<const T*>(p.q) + (place.begin + place.first) * q_stride + place.head * p.columns;
  const T* const k = static_cast<const T*>(p.k) + place.begin * k_stride + kv_head * p.columns;
  const T* const v = static_cast<const T*>(p.v) + place.begin * v_stride + kv_head * p.values;
  CopyTile<T, kSize>(q_tile, q, queries, columns, q_stride);
  CopyTile<T, kSize>(k_tile, k, min(kTile, keys_seen), columns, k_stride);
  CommitCopies();
  CopyTile<T, kSize>(v_tile, v, min(kTile, keys_seen), values, v_stride);
  CommitCopies();

  // Elements 0 and 1 of an 8-wide group belong to query warp_row + lane / 4, elements 2 and 3 to
  // the query 8 below. Their columns are lane % 4 · 2 and the next.
  float out[kSize / 8][4] = {};
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};  // over this lane's columns
  const int row = warp_row + lane / 4;
  const int column = lane % 4 * 2;

  for (int key = 0; key < keys_seen; key += kTile) {
    const int keys = min(kTile, keys_seen - key);
    if (p.bias != nullptr) LoadBiases<T>(p, place, key, biases);
    WaitForCopies<1>();  // for Q and K
    __syncthreads();
    float s[kTile / 8][4] = {};
    if (works) {
#pragma unroll
      for (int d = 0; d < kSize / 16; ++d) {
        if (d * 16 >= columns) continue;
        uint32_t a[4];
        LoadMatrices(a, q_tile + ChunkAt<kSize>(warp_row + lane % 16, d * 2 + lane / 16));
#pragma unroll
        for (int n = 0; n < kTile / 16; ++n) {
          if (n * 16 >= keys) continue;
          uint32_t b[4];
          LoadMatrices(
              b, k_tile + ChunkAt<kSize>(n * 16 + lane % 8 + lane / 16 * 8, d * 2 + lane / 8 % 2));
          MultiplyAdd<T>(s[2 * n], a, b[0], b[1]);
          MultiplyAdd<T>(s[2 * n + 1], a, b[2], b[3]);
        }
      }
    }
    __syncthreads();  // all have read K, and `biases` is complete
    if (key + kTile < keys_seen) {
      CopyTile<T, kSize>(k_tile, k + (key + kTile) * k_stride, min(kTile, keys_seen - key - kTile),
                         columns, k_stride);
    }
    CommitCopies();  // possibly empty
    if (works) {
      // Scores as exponents of 2; −∞ if there is no key or it is masked.
      const float factor = p.scale * kLog2E;
      if (p.softcap == 0) {
#pragma unroll
        for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) s[n][e] *= factor;
        }
      } else {
        const float inverse = 2.0f * factor / p.softcap, cap = p.softcap * kLog2E;
#pragma unroll
        for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            // tanh(x) = 1 − 2 / (exp(2x) + 1)
            s[n][e] = cap - 2.0f * cap * __frcp_rn(FastPower2(s[n][e] * inverse) + 1.0f);
          }
        }
      }
      if (p.bias != nullptr) {
        const float* const upper = biases + (p.points > 0 ? kTile - 1 - row : 0) + column;
        const float* const lower = upper - (p.points > 0 ? 8 : 0);  // for the query 8 below
#pragma unroll
        for (int n = 0; n < kTile / 8; ++n) {
          s[n][0] += upper[n * 8];
          s[n][1] += upper[n * 8 + 1];
          s[n][2] += lower[n * 8];
          s[n][3] += lower[n * 8 + 1];
        }
      }
      if (keys < kTile || (p.causal && key + kTile - 1 > place.first + warp_row)) {
#pragma unroll
        for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int i = row + e / 2 * 8, j = n * 8 + column + e % 2;
            const bool seen = j < keys && (!p.causal || key + j <= place.first + i);
            if (!seen) s[n][e] = -INFINITY;
          }
        }
      }
      float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) most[e / 2] = fmaxf(most[e / 2], s[n][e]);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        most[half] = fmaxf(most[half], __shfl_xor_sync(kAllLanes, most[half], 1));
        most[half] = fmaxf(most[half], __shfl_xor_sync(kAllLanes, most[half], 2));
        const Raised raised = Raise(max[half], most[half]);
        max[half] = raised.max;
        sum[half] *= raised.shrink;
#pragma unroll
        for (int n = 0; n < kSize / 8; ++n) {
          out[n][2 * half] *= raised.shrink;
          out[n][2 * half + 1] *= raised.shrink;
        }
#pragma unroll
        for (int n = 0; n < kTile / 8; ++n) {
          if (n / 2 * 16 >= keys) continue;  // not multiplied either
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            s[n][e] = FastPower2(s[n][e] - raised.base);
            sum[half] += s[n][e];
          }
        }
      }
    }
    WaitForCopies<1>();  // for V
    __syncthreads();
    if (works) {
#pragma unroll
      for (int n = 0; n < kTile / 16; ++n) {
        if (n * 16 >= keys) continue;
        const uint32_t a[4] = {PackPair<T>(s[2 * n][0], s[2 * n][1]),
                               PackPair<T>(s[2 * n][2], s[2 * n][3]),
                               PackPair<T>(s[2 * n + 1][0], s[2 * n + 1][1]),
                               PackPair<T>(s[2 * n + 1][2], s[2 * n + 1][3])};
#pragma unroll
        for (int d = 0; d < kSize / 16; ++d) {
          if (d * 16 >= values) continue;
          uint32_t b[4];
          LoadTransposed(b, v_tile + ChunkAt<kSize>(n * 16 + lane % 16, d * 2 + lane / 16));
          MultiplyAdd<T>(out[2 * d], a, b[0], b[1]);
          MultiplyAdd<T>(out[2 * d + 1], a, b[2], b[3]);
        }
      }
    }
    __syncthreads();  // all have read V and `biases`
    if (key + kTile < keys_seen) {
      CopyTile<T, kSize>(v_tile, v + (key + kTile) * v_stride, min(kTile, keys_seen - key - kTile),
                         values, v_stride);
    }
    CommitCopies();
  }
  if (!works) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] += __shfl_xor_sync(kAllLanes, sum[half], 1);
    sum[half] += __shfl_xor_sync(kAllLanes, sum[half], 2);
    const float by = InverseSum(p, sum[half]);
    // Uses the warp's rows of the tile of Q, which no other warp reads, to write whole chunks.
#pragma unroll
    for (int n = 0; n < kSize / 8; ++n) {
      const uint32_t at = ChunkAt<kSize>(row + 8 * half, n) + static_cast<uint32_t>(column) * 2;
      *reinterpret_cast<uint32_t*>(shared + at) =
          PackPair<T>(out[n][2 * half] * by, out[n][2 * half + 1] * by);
    }
  }
  __syncwarp();
  constexpr int kChunks = kSize / 8;
  T* const to = static_cast<T*>(p.out) + (place.begin + place.first) * p.heads * p.values +
                place.head * p.values;
#pragma unroll
  for (int i = 0; i < 16 * kChunks / kWarp; ++i) {
    const int r = warp_row + (lane + i * kWarp) / kChunks, chunk = (lane + i * kWarp) % kChunks;
    if (r >= queries || chunk * 8 >= values) continue;
    *reinterpret_cast<uint4*>(to + r * p.heads * p.values + chunk * 8) =
        *reinterpret_cast<const uint4*>(shared + ChunkAt<kSize>(r, chunk));
  }
}

// --- Multiply-adds in float32 --------------------------------------------------------------------

constexpr int kFmaThreads = 256;      // [16 by 4 queries, 16 by 4 keys or kSize / 16 columns]
constexpr int kFmaPitch = kTile + 4;  // of transposed tiles

template <int kSize>
constexpr int kFmaSharedBytes = ((2 * kSize + kTile) * kFmaPitch + kTile * kSize) * 4;

// columns and values are at most kSize.
template <typename T, int kSize>
__global__ void __launch_bounds__(kFmaThreads)
    FmaKernel(const __grid_constant__ RaggedAttentionArgs p) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ float biases[2 * kTile];
  float* const q_tile = reinterpret_cast<float*>(shared);  // [column][query]
  float* const k_tile = q_tile + kSize * kFmaPitch;        // [column][key]
  float* const weights = k_tile + kSize * kFmaPitch;       // [key][query]
  float* const v_tile = weights + kTile * kFmaPitch;       // [key][column]
  CheckAllOffsets(p);
  const Place place = FindPlace(p);
  if (place.first >= place.length) return;
  if (place.zeros) {
    FillZeros<T>(p, place);
    return;
  }
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / 16 * 4;      // 4 queries from here
  const int column = thread % 16;       // keys column · 4 and the 3 after it
  constexpr int kColumns = kSize / 16;  // output columns per thread, from column · kColumns
  struct alignas(kColumns < 4 ? 8 : 16) Columns {
    float v[kColumns];
  };
  const int queries = min(kTile, place.length - place.first);
  const int keys_seen = p.causal ? min(place.length, place.first + kTile) : place.length;
  const auto columns = static_cast<int>(p.columns);
  const auto values = static_cast<int>(p.values);
  const int64_t kv_head = place.head / (p.heads / p.kv_heads);
  const int64_t k_stride = p.kv_heads * p.columns;
  const int64_t v_stride = p.kv_heads * p.values;
  const T* const q =
      static_cast<const T*>(p.q) + ((place.begin + place.first) * p.heads + place.head) * p.columns;
  const T* const k = static_cast<const T*>(p.k) + place.begin * k_stride + kv_head * p.columns;
  const T* const v = static_cast<const T*>(p.v) + place.begin * v_stride + kv_head * p.values;
  // Consecutive threads read a row; zeros if the row or the column does not exist.
  for (int i = thread; i < kTile * kSize; i += kFmaThreads) {
    const int r = i / kSize, c = i % kSize;
    q_tile[c * kFmaPitch + r] =
        r < queries && c < columns ? Load(q + r * p.heads * p.columns + c) : 0.0f;
  }
  float out[4][kColumns] = {};
  float max[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  float sum[4] = {};  // over this thread's keys
  for (int key = 0; key < keys_seen; key += kTile) {
    const int keys = min(kTile, keys_seen - key);
    __syncthreads();  // the previous tiles have been read
    if (p.bias != nullptr) LoadBiases<T>(p, place, key, biases);
    for (int i = thread; i < kTile * kSize; i += kFmaThreads) {
      const int r = i / kSize, c = i % kSize;
      k_tile[c * kFmaPitch + r] =
          r < keys && c < columns ? Load(k + (key + r) * k_stride + c) : 0.0f;
      v_tile[i] = r < keys && c < values ? Load(v + (key + r) * v_stride + c) : 0.0f;
    }
    __syncthreads();
    float s[4][4] = {};
#pragma unroll 8
    for (int d = 0; d < columns; ++d) {
      const float4 a = *reinterpret_cast<const float4*>(q_tile + d * kFmaPitch + row);
      const float4 b = *reinterpret_cast<const float4*>(k_tile + d * kFmaPitch + column * 4);
      const float as[4] = {a.x, a.y, a.z, a.w}, bs[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) s[i][j] += as[i] * bs[j];
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float most = -INFINITY;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = column * 4 + j;
        const bool seen = at < keys && (!p.causal || key + at <= place.first + row + i);
        s[i][j] = seen ? Score(p, s[i][j], biases, row + i, at) : -INFINITY;
        most = fmaxf(most, s[i][j]);
      }
#pragma unroll
      for (int offset = 8; offset > 0; offset /= 2) {
        most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, offset));
      }
      const Raised raised = Raise(max[i], most);
      max[i] = raised.max;
      sum[i] *= raised.shrink;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) out[i][c] *= raised.shrink;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        s[i][j] = exp2f(s[i][j] - raised.base);
        sum[i] += s[i][j];
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      *reinterpret_cast<float4*>(weights + (column * 4 + j) * kFmaPitch + row) =
          make_float4(s[0][j], s[1][j], s[2][j], s[3][j]);
    }
    __syncwarp();  // a row's weights come from the same 16 threads that read them
#pragma unroll 4
    for (int j = 0; j < keys; ++j) {
      const float4 a = *reinterpret_cast<const float4*>(weights + j * kFmaPitch + row);
      const float as[4] = {a.x, a.y, a.z, a.w};
      const auto b = reinterpret_cast<const Columns*>(v_tile + j * kSize)[column];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out[i][c] += as[i] * b.v[c];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2) {
      sum[i] += __shfl_xor_sync(kAllLanes, sum[i], offset);
    }
    if (row + i >= queries) continue;
    const float by = InverseSum(p, sum[i]);
    T* const to = static_cast<T*>(p.out) +
                  ((place.begin + place.first + row + i) * p.heads + place.head) * p.values;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (column * kColumns + c < values) Store(to + column * kColumns + c, out[i][c] * by);
    }
  }
}

// --- Heads of any size ---------------------------------------------------------------------------

constexpr int kPlainWarps = 4;
constexpr int kPlainValues = 4;  // per lane at the same time

// One warp for each query of a tile in turn. First the maximum and sum, then the values in groups
// of kWarp · kPlainValues, with scores computed again.
template <typename T>
__global__ void __launch_bounds__(kPlainWarps* kWarp)
    PlainKernel(const __grid_constant__ RaggedAttentionArgs p) {
  CheckAllOffsets(p);
  const Place place = FindPlace(p);
  if (place.first >= place.length) return;
  if (place.zeros) {
    FillZeros<T>(p, place);
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int queries = min(kTile, place.length - place.first);
  const int64_t kv_head = place.head / (p.heads / p.kv_heads);
  const T* const k = static_cast<const T*>(p.k) + kv_head * p.columns;
  const T* const v = static_cast<const T*>(p.v) + kv_head * p.values;
  const T* const bias = static_cast<const T*>(p.bias);
  for (int r = static_cast<int>(threadIdx.x) / kWarp; r < queries; r += kPlainWarps) {
    const int i = place.first + r;
    const T* const q =
        static_cast<const T*>(p.q) + ((place.begin + i) * p.heads + place.head) * p.columns;
    T* const to = static_cast<T*>(p.out) + ((place.begin + i) * p.heads + place.head) * p.values;
    const int keys = p.causal ? i + 1 : place.length;
    const auto score = [&](int j) {
      const T* const key = k + (place.begin + j) * p.kv_heads * p.columns;
      float product = 0;
      for (int64_t d = lane; d < p.columns; d += kWarp) product += Load(q + d) * Load(key + d);
#pragma unroll
      for (int offset = kWarp / 2; offset > 0; offset /= 2) {
        product += __shfl_xor_sync(kAllLanes, product, offset);
      }
      float b = 0;
      if (p.points > 0) {
        int64_t at = p.points / 2 + j - i;
        at = at < 0 ? 0 : at >= p.points ? p.points - 1 : at;
        b = Load(bias + place.head * p.points + at);
      } else if (bias != nullptr) {
        b = Load(bias + place.begin + j);
      }
      float s = product * p.scale;
      if (p.softcap != 0) s = p.softcap * tanhf(s / p.softcap);
      return (s + b) * kLog2E;
    };
    float max = -INFINITY, sum = 0;
    for (int j = 0; j < keys; ++j) {
      const float s = score(j);
      const Raised raised = Raise(max, s);
      max = raised.max;
      sum = sum * raised.shrink + exp2f(s - raised.base);
    }
    const float base = max == -INFINITY ? 0.0f : max;
    const float by = InverseSum(p, sum);
    for (int64_t first = 0; first < p.values; first += kWarp * kPlainValues) {
      float out[kPlainValues] = {};
      for (int j = 0; j < keys; ++j) {
        const float weight = exp2f(score(j) - base);
        const T* const value = v + (place.begin + j) * p.kv_heads * p.values;
#pragma unroll
        for (int c = 0; c < kPlainValues; ++c) {
          const int64_t at = first + c * kWarp + lane;
          if (at < p.values) out[c] += weight * Load(value + at);
        }
      }
#pragma unroll
      for (int c = 0; c < kPlainValues; ++c) {
        const int64_t at = first + c * kWarp + lane;
        if (at < p.values) Store(to + at, out[c] * by);
      }
    }
  }
}

// --- Launches ------------------------------------------------------------------------------------

bool Aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// Calls f.template operator()<kSize>() with the smallest kernel size for `size` columns.
template <typename F>
void ForSize(int64_t size, F&& f) {
  if (size <= 32) {
    f.template operator()<32>();
  } else if (size <= 64) {
    f.template operator()<64>();
  } else {
    f.template operator()<kMaxSize>();
  }
}
template <typename F>
void ForAttentionTypes(DType dtype, F&& f) {
  if (dtype == DType::kFloat) f.template operator()<float>();
  if (dtype == DType::kFloat16) f.template operator()<Half>();
  if (dtype == DType::kBFloat16) f.template operator()<BHalf>();
}

template <typename T>
bool TakesMma(int64_t columns, int64_t values) {
  return sizeof(T) == 2 && columns % 8 == 0 && values % 8 == 0;
}

}  // namespace

cudaError_t PrepareRaggedAttention(DType dtype, int64_t columns, int64_t values) {
  const int64_t size = std::max(columns, values);
  cudaError_t error = cudaSuccess;
  if (size > kMaxSize) return error;
  ForAttentionTypes(dtype, [&]<typename T>() {
    ForSize(size, [&]<int kSize>() {
      error = cudaFuncSetAttribute(FmaKernel<T, kSize>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   kFmaSharedBytes<kSize>);
      if constexpr (sizeof(T) == 2) {
        if (error != cudaSuccess) return;
        error =
            cudaFuncSetAttribute(MmaKernel<T, kSize>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 kMmaSharedBytes<kSize>);
      }
    });
  });
  return error;
}

int64_t RaggedAttentionBlocks(const RaggedAttentionArgs& args) {
  return (args.tokens / kTile + args.sequences + 1) * args.heads;
}

void LaunchRaggedAttention(DType dtype, const RaggedAttentionArgs& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(RaggedAttentionBlocks(args));
  if (blocks == 0) return;
  const int64_t size = std::max(args.columns, args.values);
  ForAttentionTypes(dtype, [&]<typename T>() {
    if (size > kMaxSize) {
      PlainKernel<T><<<blocks, kPlainWarps * kWarp, 0, stream>>>(args);
      return;
    }
    ForSize(size, [&]<int kSize>() {
      if constexpr (sizeof(T) == 2) {
        if (TakesMma<T>(args.columns, args.values) && Aligned16(args.q) && Aligned16(args.k) &&
            Aligned16(args.v) && Aligned16(args.out)) {
          MmaKernel<T, kSize><<<blocks, kMmaThreads, kMmaSharedBytes<kSize>, stream>>>(args);
          return;
        }
      }
      FmaKernel<T, kSize><<<blocks, kFmaThreads, kFmaSharedBytes<kSize>, stream>>>(args);
    });
  });
}

}  // namespace chairlift::cuda
