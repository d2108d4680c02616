#include <algorithm>

#include "device/cuda/cuda_stream.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/movement.cuh"
#include "ops/cuda/types.cuh"

namespace chairlift::cuda {
namespace {

template <typename T>
__global__ void Move(MovedInputs inputs, const int64_t* places, int64_t count, T fill, T* out) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t place = places[i];
    const int64_t element = place & ((int64_t{1} << kInputShift) - 1);
    out[i] = place < 0 ? fill : static_cast<const T*>(inputs.data[place >> kInputShift])[element];
  }
}

constexpr int kTile = 32, kTileRows = 8;

template <typename T>
__global__ void Transpose(const T* in, int64_t batch, int64_t rows, int64_t columns,
                          int64_t column_tiles, T* out) {
  __shared__ T tile[kTile][kTile + 1];
  const int64_t first_row = blockIdx.x / column_tiles * kTile;  // of the output
  const int64_t first_column = blockIdx.x % column_tiles * kTile;
  for (int64_t b = blockIdx.y; b < batch; b += gridDim.y) {
    const T* const from = in + b * rows * columns;
    T* const to = out + b * rows * columns;
    for (int i = threadIdx.y; i < kTile; i += kTileRows) {
      const int64_t c = first_column + i, r = first_row + threadIdx.x;
      if (c < columns && r < rows) tile[i][threadIdx.x] = from[c * rows + r];
    }
    __syncthreads();
    for (int i = threadIdx.y; i < kTile; i += kTileRows) {
      const int64_t r = first_row + i, c = first_column + threadIdx.x;
      if (c < columns && r < rows) to[r * columns + c] = tile[threadIdx.x][i];
    }
    __syncthreads();
  }
}

template <typename T, typename Index>
__global__ void Gather(const T* in, const Index* indices, int64_t size, int64_t count,
                       int64_t inner, int64_t total, T* out, int* fault) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < total;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t row = i / inner;
    int64_t index = indices[row % count];
    if (index < 0) index += size;
    if (index < 0 || index >= size) {
      atomicMax(fault, static_cast<int>(DataFault::kIndexOutOfRange));
      index = 0;
    }
    out[i] = in[(row / count * size + index) * inner + i % inner];
  }
}

template <typename T, typename Index>
__global__ void GatherElements(__grid_constant__ const GatherElementsCall call, const T* in,
                               const Index* indices, T* out, int* fault) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < call.count;
       i += int64_t{gridDim.x} * kThreads) {
    int64_t index = indices[i];
    if (index < 0) index += call.size;
    if (index < 0 || index >= call.size) {
      atomicMax(fault, static_cast<int>(DataFault::kIndexOutOfRange));
      index = 0;
    }
    int64_t rest = i, place = 0;
    for (int d = call.num_dims - 1; d >= 0; --d) {
      place += (d == call.axis ? index : rest % call.dims[d]) * call.strides[d];
      rest /= call.dims[d];
    }
    out[i] = in[place];
  }
}

}  // namespace

void LaunchGatherElements(const GatherElementsCall& call, const void* in, const void* indices,
                          bool wide_indices, size_t bytes, void* out, int* fault,
                          cudaStream_t stream) {
  if (call.count == 0) return;
  ForWidth(bytes, [&]<typename T>() {
    const auto* const from = static_cast<const T*>(in);
    auto* const to = static_cast<T*>(out);
    if (wide_indices) {
      GatherElements<T, int64_t><<<Blocks(call.count), kThreads, 0, stream>>>(
          call, from, static_cast<const int64_t*>(indices), to, fault);
    } else {
      GatherElements<T, int32_t><<<Blocks(call.count), kThreads, 0, stream>>>(
          call, from, static_cast<const int32_t*>(indices), to, fault);
    }
  });
}

void LaunchMove(const MovedInputs& inputs, const int64_t* places, int64_t count, size_t bytes,
                uint64_t fill, void* out, cudaStream_t stream) {
  if (count == 0) return;
  ForWidth(bytes, [&]<typename T>() {
    Move<T><<<Blocks(count), kThreads, 0, stream>>>(inputs, places, count, static_cast<T>(fill),
                                                    static_cast<T*>(out));
  });
}

void LaunchTranspose(const void* in, int64_t batch, int64_t rows, int64_t columns, size_t bytes,
                     void* out, cudaStream_t stream) {
  if (batch * rows * columns == 0) return;
  const int64_t row_tiles = (rows + kTile - 1) / kTile;
  const int64_t column_tiles = (columns + kTile - 1) / kTile;
  const dim3 grid(static_cast<unsigned>(row_tiles * column_tiles),
                  static_cast<unsigned>(std::min<int64_t>(batch, 65535)));
  ForWidth(bytes, [&]<typename T>() {
    Transpose<T><<<grid, dim3(kTile, kTileRows), 0, stream>>>(
        static_cast<const T*>(in), batch, rows, columns, column_tiles, static_cast<T*>(out));
  });
}

void LaunchGather(const void* in, const void* indices, bool wide_indices, int64_t outer,
                  int64_t size, int64_t count, int64_t inner_bytes, void* out, int* fault,
                  cudaStream_t stream) {
  const int64_t bytes = outer * count * inner_bytes;
  if (bytes == 0 || size == 0) return;
  const auto launch = [&]<typename T, typename Index>() {
    const int64_t total = bytes / static_cast<int64_t>(sizeof(T));
    Gather<T, Index><<<Blocks(total), kThreads, 0, stream>>>(
        static_cast<const T*>(in), static_cast<const Index*>(indices), size, count,
        inner_bytes / static_cast<int64_t>(sizeof(T)), total, static_cast<T*>(out), fault);
  };
  const auto with = [&]<typename T>() {
    if (wide_indices) {
      launch.template operator()<T, int64_t>();
    } else {
      launch.template operator()<T, int32_t>();
    }
  };
  const auto bits = static_cast<uint64_t>(inner_bytes) | reinterpret_cast<uint64_t>(in) |
                    reinterpret_cast<uint64_t>(out);
  if (bits % 16 == 0) {
    with.template operator()<uint4>();
  } else if (bits % 4 == 0) {
    with.template operator()<uint32_t>();
  } else if (bits % 2 == 0) {
    with.template operator()<uint16_t>();
  } else {
    with.template operator()<uint8_t>();
  }
}

}  // namespace chairlift::cuda
