// The sums of a block of 32 rows by 32 columns in 8-bit matrix tiles: by AMX, and the same
// arithmetic in plain code. The code in int8_gemm.cc is written once for both.
//
// A tile of A is [16 rows, 64 of K] in uint8, one of B is [16 fours of K, 16 columns, 4] in int8. A
// step adds the product of one or two tiles of A, `a_stride` apart, and two adjacent tiles of B.
#ifndef CHAIRLIFT_OPS_LINEAR_INT8_TILES_H_
#define CHAIRLIFT_OPS_LINEAR_INT8_TILES_H_

#include <algorithm>
#include <cstdint>

#include "device/cpu/tiles.h"
#include "ops/linear/packed_gemm.h"

namespace chairlift {

inline constexpr int64_t kInt8TileRows = 16;
inline constexpr int64_t kInt8TileDepth = 64;  // elements of K
inline constexpr int64_t kInt8TileColumns = 16;
inline constexpr int64_t kInt8TileBytes = kInt8TileRows * kInt8TileDepth;

// TDPBUSD in plain code; sums are modulo 2³².
class PortableInt8Tiles {
 public:
  void Begin() { std::fill_n(sums_, kGemmPanel * kGemmPanel, 0U); }
  template <bool kTwo>
  void Step(const uint8_t* a, int64_t a_stride, const int8_t* b) {
    for (int64_t r = 0; r < (kTwo ? 2 : 1); ++r) {
      for (int64_t c = 0; c < 2; ++c) {
        Multiply(a + r * a_stride, b + c * kInt8TileBytes,
                 sums_ + r * kInt8TileRows * kGemmPanel + c * kInt8TileColumns);
      }
    }
  }
  // sums [16 or 32, 32].
  template <bool kTwo>
  void End(int32_t* sums) const {
    for (int64_t i = 0; i < (kTwo ? 2 : 1) * kInt8TileRows * kGemmPanel; ++i) {
      sums[i] = static_cast<int32_t>(sums_[i]);
    }
  }

 private:
  static void Multiply(const uint8_t* a, const int8_t* b, uint32_t* sums) {
    for (int64_t r = 0; r < kInt8TileRows; ++r) {
      for (int64_t n = 0; n < kInt8TileColumns; ++n) {
        for (int64_t k = 0; k < kInt8TileDepth; ++k) {
          const int32_t product =
              a[r * kInt8TileDepth + k] * b[k / 4 * kInt8TileDepth + 4 * n + k % 4];
          sums[r * kGemmPanel + n] += static_cast<uint32_t>(product);
        }
      }
    }
  }

  uint32_t sums_[kGemmPanel * kGemmPanel];
};

#if defined(__x86_64__)
// Needs GrantTiles(). Tiles 0 to 3 are the sums, 4 and 5 are A, 6 and 7 are B.
class AmxInt8Tiles {
 public:
  void Begin() {
    asm volatile("tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3" ::);
  }
  template <bool kTwo>
  void Step(const uint8_t* a, int64_t a_stride, const int8_t* b) {
    Load<4>(a);
    Load<6>(b);
    Multiply<0, 4, 6>();
    Load<7>(b + kInt8TileBytes);
    Multiply<1, 4, 7>();
    if constexpr (kTwo) {
      Load<5>(a + a_stride);
      Multiply<2, 5, 6>();
      Multiply<3, 5, 7>();
    }
  }
  template <bool kTwo>
  void End(int32_t* sums) const {
    Store<0>(sums);
    Store<1>(sums + kInt8TileColumns);
    if constexpr (kTwo) {
      Store<2>(sums + kInt8TileRows * kGemmPanel);
      Store<3>(sums + kInt8TileRows * kGemmPanel + kInt8TileColumns);
    }
  }

 private:
  template <int kTile>
  static void Load(const void* from) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kTile), "r"(from), "r"(kInt8TileDepth)
                 : "memory");
  }
  template <int kTile>
  static void Store(int32_t* to) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kTile), "r"(to),
                 "r"(kGemmPanel * sizeof(int32_t))
                 : "memory");
  }
  template <int kSums, int kA, int kB>
  static void Multiply() {
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
  }
};
#endif

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_INT8_TILES_H_
