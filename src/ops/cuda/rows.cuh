// Loops over the elements of rows, several elements of a row per thread.
#ifndef CHAIRLIFT_OPS_CUDA_ROWS_CUH_
#define CHAIRLIFT_OPS_CUDA_ROWS_CUH_

#include <algorithm>
#include <cstdint>

#include "ops/cuda/types.cuh"

namespace chairlift::cuda {

inline constexpr int kPackBytes = 16;

// V adjacent elements, loaded and stored together; more than 16 bytes in parts.
template <typename T, int V>
struct alignas(V * sizeof(T) < kPackBytes ? V * sizeof(T) : kPackBytes) Pack {
  T values[V];
};
template <int V, typename T>
__device__ __forceinline__ void LoadPack(const T* from, Compute<T>* to) {
  const Pack<T, V> pack = *reinterpret_cast<const Pack<T, V>*>(from);
#pragma unroll
  for (int i = 0; i < V; ++i) to[i] = Load(&pack.values[i]);
}
template <int V, typename T>
__device__ __forceinline__ void StorePack(const Compute<T>* from, T* to) {
  Pack<T, V> pack;
#pragma unroll
  for (int i = 0; i < V; ++i) Store(&pack.values[i], from[i]);
  *reinterpret_cast<Pack<T, V>*>(to) = pack;
}

// Whether packs may be read at this address; true for null.
inline bool PackAligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % kPackBytes == 0; }

// Threads x are for the `columns` (or packs) of a row, y for rows. Thread (x, y) of block (i, j)
// starts at column i · block.x + x and row j · block.y + y, and advances by all rows of the grid.
// Each gets at least `rows_a_thread` rows if there are enough.
struct RowGrid {
  dim3 grid, block;
};
inline RowGrid GridOfRows(int64_t rows, int64_t columns, int64_t rows_a_thread) {
  constexpr unsigned kThreads = 256;
  constexpr int64_t kMostRows = 65535;  // of a grid
  unsigned x = 1;
  while (x < kThreads && x < columns) x *= 2;
  const unsigned y = kThreads / x;
  const int64_t row_blocks = (rows + y * rows_a_thread - 1) / (y * rows_a_thread);
  return {dim3(static_cast<unsigned>((columns + x - 1) / x),
               static_cast<unsigned>(std::min(row_blocks, kMostRows))),
          dim3(x, y)};
}

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_OPS_CUDA_ROWS_CUH_
