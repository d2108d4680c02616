#include <algorithm>

#include "device/cuda/rows.cuh"

namespace chairlift::cuda {
namespace {

// The copies of one launch. Addresses are passed as kernel parameters, of which a kernel has 4 KB.
template <int kRows>
struct GatheredRows {
  const std::byte* from[kRows];
  std::byte* to;
  size_t row_bytes;
};
template <int kRows>
struct CopiedRows {
  Stream::RowCopy copies[kRows];
  size_t row_bytes;
};

template <int kRows>
__device__ Stream::RowCopy CopyOf(const GatheredRows<kRows>& rows, unsigned r) {
  return {rows.from[r], rows.to + r * rows.row_bytes};
}
template <int kRows>
__device__ Stream::RowCopy CopyOf(const CopiedRows<kRows>& rows, unsigned r) {
  return rows.copies[r];
}

// Each block along x has one row; blocks along y divide the row.
template <typename T, typename Rows>
__global__ void Copy(__grid_constant__ const Rows rows) {
  const Stream::RowCopy copy = CopyOf(rows, blockIdx.x);
  const size_t elements = rows.row_bytes / sizeof(T);
  const auto* const from = reinterpret_cast<const T*>(copy.from);
  auto* const to = reinterpret_cast<T*>(copy.to);
  for (size_t i = blockIdx.y * blockDim.x + threadIdx.x; i < elements;
       i += static_cast<size_t>(gridDim.y) * blockDim.x) {
    to[i] = from[i];
  }
}

// `bits`: the bitwise or of all addresses and row_bytes, which gives their common alignment.
template <typename Rows>
void Launch(const Rows& rows, int64_t count, uintptr_t bits, cudaStream_t stream) {
  const auto launch = [&]<typename T>() {
    constexpr int kMostThreads = 256;
    constexpr size_t kEach = 4, kMostParts = 64;
    const size_t elements = rows.row_bytes / sizeof(T);
    const auto threads =
        static_cast<unsigned>(std::min<size_t>((elements + 31) / 32 * 32, kMostThreads));
    const size_t of_a_part = kEach * threads;
    const auto parts =
        static_cast<unsigned>(std::min((elements + of_a_part - 1) / of_a_part, kMostParts));
    Copy<T, Rows><<<dim3(static_cast<unsigned>(count), parts), threads, 0, stream>>>(rows);
  };
  if (bits % sizeof(uint4) == 0) {
    launch.template operator()<uint4>();
  } else if (bits % sizeof(uint32_t) == 0) {
    launch.template operator()<uint32_t>();
  } else {
    launch.template operator()<uint8_t>();
  }
}

uintptr_t Bits(const void* p) { return reinterpret_cast<uintptr_t>(p); }

template <int kRows>
void GatherSome(std::byte* to, const std::byte* const* rows, int64_t count, size_t row_bytes,
                cudaStream_t stream) {
  GatheredRows<kRows> all;
  all.to = to;
  all.row_bytes = row_bytes;
  uintptr_t bits = Bits(to) | row_bytes;
  for (int64_t r = 0; r < count; ++r) bits |= Bits(all.from[r] = rows[r]);
  Launch(all, count, bits, stream);
}

template <int kRows>
void CopySome(std::span<const Stream::RowCopy> copies, size_t row_bytes, cudaStream_t stream) {
  CopiedRows<kRows> all;
  all.row_bytes = row_bytes;
  std::copy(copies.begin(), copies.end(), all.copies);
  uintptr_t bits = row_bytes;
  for (const Stream::RowCopy& copy : copies) bits |= Bits(copy.from) | Bits(copy.to);
  Launch(all, static_cast<int64_t>(copies.size()), bits, stream);
}

}  // namespace

void LaunchGather(void* to, const std::byte* const* rows, int64_t count, size_t row_bytes,
                  cudaStream_t stream) {
  constexpr int kFew = 64, kMany = 480;
  auto* place = static_cast<std::byte*>(to);
  while (count > 0) {
    const int64_t some = std::min<int64_t>(count, kMany);
    if (some <= kFew) {
      GatherSome<kFew>(place, rows, some, row_bytes, stream);
    } else {
      GatherSome<kMany>(place, rows, some, row_bytes, stream);
    }
    place += static_cast<size_t>(some) * row_bytes;
    rows += some;
    count -= some;
  }
}

void LaunchCopyRows(std::span<const Stream::RowCopy> copies, size_t row_bytes,
                    cudaStream_t stream) {
  constexpr size_t kFew = 32, kMany = 240;
  while (!copies.empty()) {
    const auto some = copies.first(std::min(copies.size(), kMany));
    if (some.size() <= kFew) {
      CopySome<kFew>(some, row_bytes, stream);
    } else {
      CopySome<kMany>(some, row_bytes, stream);
    }
    copies = copies.subspan(some.size());
  }
}

}  // namespace chairlift::cuda
