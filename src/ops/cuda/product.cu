#include <algorithm>
#include <type_traits>

#include "ops/cuda/activation.cuh"
#include "ops/cuda/product.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/cuda/types.cuh"

namespace chairlift::cuda {
namespace {

// --- After a product -----------------------------------------------------------------------------

constexpr int kRowsAThread = 4;

// `columns` packs of V elements per row. The residual is read in packs if its column stride is 1.
template <typename From, typename To, int V>
__global__ void __launch_bounds__(256)
    FinishRows(const From* product, To* out, int64_t rows, int64_t columns, ProductEnd end) {
  using C = Compute<To>;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  const int64_t width = columns * V;
  const auto* residual = static_cast<const To*>(end.residual);
  C bias[V] = {};
  if (end.bias != nullptr) LoadPack<V>(static_cast<const To*>(end.bias) + column * V, bias);
  const C scale = end.residual_scale;
  const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.y;
  for (int64_t first = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y; first < rows;
       first += step * kRowsAThread) {
    // All loads are issued before any arithmetic, so that they overlap.
    C values[kRowsAThread][V];
    C added[kRowsAThread][V];
#pragma unroll
    for (int i = 0; i < kRowsAThread; ++i) {
      const int64_t row = first + i * step;
      if (row >= rows) break;
      LoadPack<V>(product + row * width + column * V, values[i]);
      if (residual == nullptr) continue;
      const To* from = residual + row * end.residual_row_stride;
      if (end.residual_column_stride == 1) {
        LoadPack<V>(from + column * V, added[i]);
      } else {
#pragma unroll
        for (int j = 0; j < V; ++j) {
          added[i][j] = Load(from + (column * V + j) * end.residual_column_stride);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kRowsAThread; ++i) {
      const int64_t row = first + i * step;
      if (row >= rows) break;
#pragma unroll
      for (int j = 0; j < V; ++j) {
        values[i][j] += bias[j];
        if (residual != nullptr) values[i][j] += scale * added[i][j];
      }
      Activate<V>(end.activation, values[i]);
      StorePack<V>(values[i], out + row * width + column * V);
    }
  }
}

template <typename From, typename To>
void Finish(cudaStream_t stream, const void* product, void* out, int64_t rows, int64_t columns,
            const ProductEnd& end) {
  constexpr int kPack = kPackBytes / static_cast<int>(sizeof(To));
  const bool residual_in_packs = end.residual == nullptr || end.residual_column_stride != 1 ||
                                 end.residual_row_stride % kPack == 0;
  const bool packs = columns % kPack == 0 && residual_in_packs && PackAligned(product) &&
                     PackAligned(out) && PackAligned(end.bias) && PackAligned(end.residual);
  const int64_t packed = packs ? columns / kPack : columns;
  const RowGrid shape = GridOfRows(rows, packed, kRowsAThread);
  const auto launch = [&](auto* kernel) {
    kernel<<<shape.grid, shape.block, 0, stream>>>(static_cast<const From*>(product),
                                                   static_cast<To*>(out), rows, packed, end);
  };
  packs ? launch(&FinishRows<From, To, kPack>) : launch(&FinishRows<From, To, 1>);
}

// --- Products of any type ------------------------------------------------------------------------

constexpr int kTile = 32;                         // rows, columns and terms of a block's tile
constexpr int kTileRows = 8;                      // of threads
constexpr int kRowsOfThread = kTile / kTileRows;  // of C

// Integers wrap: they are multiplied and added as unsigned numbers.
template <typename T>
struct SumType {
  using Type = Compute<T>;
};
template <>
struct SumType<int32_t> {
  using Type = uint32_t;
};
template <>
struct SumType<int64_t> {
  using Type = uint64_t;
};

// One block for each 32 × 32 elements of C, with threads (32, 8).
template <typename T>
__global__ void __launch_bounds__(kTile* kTileRows)
    PlainRows(PlainProduct p, int64_t row_tiles, int64_t column_tiles) {
  using S = typename SumType<T>::Type;
  __shared__ S a_tile[kTile][kTile + 1];
  __shared__ S b_tile[kTile][kTile + 1];
  const int x = threadIdx.x;
  const int y = threadIdx.y;
  const int64_t tiles = p.batches * row_tiles * column_tiles;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t first_column = tile % column_tiles * kTile;
    const int64_t first_row = tile / column_tiles % row_tiles * kTile;
    const int64_t batch = tile / column_tiles / row_tiles;
    const T* a = static_cast<const T*>(p.a) + batch * p.a_batch_stride;
    const T* b = static_cast<const T*>(p.b) + batch * p.b_batch_stride;
    S sums[kRowsOfThread] = {};
    for (int64_t k = 0; k < p.k; k += kTile) {
#pragma unroll
      for (int i = 0; i < kRowsOfThread; ++i) {
        const int at = y + i * kTileRows;
        const int64_t row = first_row + at;
        const int64_t column = first_column + x;
        a_tile[at][x] =
            row < p.m && k + x < p.k
                ? static_cast<S>(Load(a + row * p.a_row_stride + (k + x) * p.a_k_stride))
                : S(0);
        b_tile[at][x] =
            column < p.n && k + at < p.k
                ? static_cast<S>(Load(b + (k + at) * p.b_k_stride + column * p.b_n_stride))
                : S(0);
      }
      __syncthreads();
#pragma unroll 8
      for (int j = 0; j < kTile; ++j) {
        const S value = b_tile[j][x];
#pragma unroll
        for (int i = 0; i < kRowsOfThread; ++i) sums[i] += a_tile[y + i * kTileRows][j] * value;
      }
      __syncthreads();
    }
    const int64_t column = first_column + x;
    if (column >= p.n) continue;
#pragma unroll
    for (int i = 0; i < kRowsOfThread; ++i) {
      const int64_t row = first_row + y + i * kTileRows;
      if (row >= p.m) break;
      const int64_t out_row = batch * p.m + row;
      S bias = S(0);
      S residual = S(0);
      if (p.end.bias != nullptr) {
        bias = static_cast<S>(Load(static_cast<const T*>(p.end.bias) + column));
      }
      if (p.end.residual != nullptr) {
        residual = static_cast<S>(Load(static_cast<const T*>(p.end.residual) +
                                       out_row * p.end.residual_row_stride +
                                       column * p.end.residual_column_stride));
      }
      S sum = sums[i];
      if constexpr (std::is_floating_point_v<S>) {
        sum =
            static_cast<S>(p.alpha) * sum + bias + static_cast<S>(p.end.residual_scale) * residual;
        Activate<1>(p.end.activation, &sum);
      } else {
        const auto scaled = [](float scale, S value) {
          if (scale == 1.0f) return value;
          return static_cast<S>(static_cast<T>(static_cast<double>(scale) *
                                               static_cast<double>(static_cast<T>(value))));
        };
        sum = scaled(p.alpha, sum) + bias + scaled(p.end.residual_scale, residual);
      }
      T* to = static_cast<T*>(p.c) + out_row * p.n + column;
      if constexpr (std::is_floating_point_v<S>) {
        Store(to, sum);
      } else {
        *to = static_cast<T>(sum);
      }
    }
  }
}

}  // namespace

void FinishProduct(cudaStream_t stream, DType from, DType to, const void* product, void* out,
                   int64_t rows, int64_t columns, const ProductEnd& end) {
  if (rows == 0 || columns == 0) return;
  ForFloats(to, [&]<typename To>() {
    if constexpr (std::is_same_v<To, Half> || std::is_same_v<To, BHalf>) {
      if (from == DType::kFloat) {
        Finish<float, To>(stream, product, out, rows, columns, end);
        return;
      }
    }
    Finish<To, To>(stream, product, out, rows, columns, end);
  });
}

void LaunchPlainProduct(cudaStream_t stream, DType dtype, const PlainProduct& product) {
  if (product.batches == 0 || product.m == 0 || product.n == 0) return;
  const int64_t row_tiles = (product.m + kTile - 1) / kTile;
  const int64_t column_tiles = (product.n + kTile - 1) / kTile;
  constexpr int64_t kMostBlocks = int64_t{1} << 30;
  const int64_t blocks = std::min(product.batches * row_tiles * column_tiles, kMostBlocks);
  const auto launch = [&]<typename T>() {
    if constexpr (sizeof(T) >= 4 || !std::is_integral_v<T>) {
      PlainRows<T><<<static_cast<unsigned>(blocks), dim3(kTile, kTileRows), 0, stream>>>(
          product, row_tiles, column_tiles);
    }
  };
  ForNumbers(dtype, launch);
}

}  // namespace chairlift::cuda
