// The sums of a block of 32 rows by 32 columns in bfloat16 matrix tiles: by AMX, and the same
// arithmetic in plain code. The code in bfloat16_gemm.cc is written once for both.
//
// A tile of A is [16 rows, 32 of K], one of B is [16 pairs of K, 16 columns, 2]. A step adds the
// product of one or two tiles of A, `a_stride` apart, and two adjacent tiles of B.
#ifndef CHAIRLIFT_OPS_LINEAR_TILE_OPS_H_
#define CHAIRLIFT_OPS_LINEAR_TILE_OPS_H_

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "chairlift/tensor.h"
#include "device/cpu/tiles.h"

namespace chairlift {

inline constexpr int64_t kTileRows = 16;
inline constexpr int64_t kTileDepth = 32;  // elements of K
inline constexpr int64_t kTileColumns = 16;
inline constexpr int64_t kTileElements = kTileRows * kTileDepth;  // bfloat16
// Rows and columns of the block of sums.
inline constexpr int64_t kSumsBlock = 32;

// TDPBF16PS in plain code. Each element of C sums the even and the odd members of its 16 pairs in
// two chains of fused multiply-adds. The two sums are then added to it. Rounds to nearest even;
// denormals are zero.
class PortableTiles {
 public:
  // Copies a row's `count` elements, `stride` apart, to their places in consecutive tiles of A. The
  // rest of the row in the last tile is set to 0.
  static void PackRow(const float* from, int64_t stride, int64_t count, BFloat16* to) {
    for (int64_t k = 0; k < count; k += kTileDepth, to += kTileElements) {
      const int64_t here = std::min(kTileDepth, count - k);
      for (int64_t i = 0; i < here; ++i) to[i] = BFloat16(from[(k + i) * stride]);
      std::fill_n(to + here, kTileDepth - here, BFloat16(0.0f));
    }
  }
  // Starts from `sums` [32, 32], or from zeros if it is null.
  void Begin(const float* sums) {
    if (sums == nullptr) {
      std::fill_n(sums_, kSumsBlock * kSumsBlock, 0.0f);
    } else {
      std::copy_n(sums, kSumsBlock * kSumsBlock, sums_);
    }
  }
  template <bool kTwo>
  void Step(const BFloat16* a, int64_t a_stride, const BFloat16* b) {
    for (int64_t r = 0; r < (kTwo ? 2 : 1); ++r) {
      for (int64_t c = 0; c < 2; ++c) {
        Multiply(a + r * a_stride, b + c * kTileElements,
                 sums_ + r * kTileRows * kSumsBlock + c * kTileColumns);
      }
    }
  }
  template <bool kTwo>
  void End(float* sums) const {
    std::copy_n(sums_, (kTwo ? 2 : 1) * kTileRows * kSumsBlock, sums);
  }

 private:
  static float Flushed(float x) {
    return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
  }
  static void Multiply(const BFloat16* a, const BFloat16* b, float* sums) {
    for (int64_t r = 0; r < kTileRows; ++r) {
      for (int64_t n = 0; n < kTileColumns; ++n) {
        float chains[2] = {};
        for (int64_t pair = 0; pair < kTileDepth / 2; ++pair) {
          for (int64_t i = 0; i < 2; ++i) {
            const auto x = static_cast<float>(a[r * kTileDepth + 2 * pair + i]);
            const auto w = static_cast<float>(b[pair * kTileDepth + 2 * n + i]);
            chains[i] = Flushed(std::fma(Flushed(x), Flushed(w), chains[i]));
          }
        }
        float& sum = sums[r * kSumsBlock + n];
        sum = Flushed(Flushed(sum) + Flushed(chains[0] + chains[1]));
      }
    }
  }

  float sums_[kSumsBlock * kSumsBlock];
};

#if defined(__x86_64__)
// Needs GrantTiles(). Tiles 0 to 3 are the sums, 4 and 5 are A, 6 and 7 are B.
class AmxTiles {
 public:
  // Processors with tiles convert 32 elements in one instruction.
  __attribute__((target("avx512f,avx512bf16"))) static void PackRow(const float* from,
                                                                    int64_t stride, int64_t count,
                                                                    BFloat16* to) {
    if (stride != 1) return PortableTiles::PackRow(from, stride, count, to);
    int64_t k = 0;
    for (; k + kTileDepth <= count; k += kTileDepth, to += kTileElements) {
      const __m512bh both =
          _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + k + 16), _mm512_loadu_ps(from + k));
      _mm512_store_si512(to, reinterpret_cast<const __m512i&>(both));
    }
    if (k == count) return;
    const auto left = [rest = count - k](int64_t first) {
      return static_cast<__mmask16>((1U << std::clamp<int64_t>(rest - first, 0, 16)) - 1);
    };
    const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(left(16), from + k + 16),
                                              _mm512_maskz_loadu_ps(left(0), from + k));
    _mm512_store_si512(to, reinterpret_cast<const __m512i&>(both));
  }
  void Begin(const float* sums) {
    if (sums == nullptr) {
      asm volatile("tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3" ::);
      return;
    }
    constexpr int64_t kStride = kSumsBlock * sizeof(float);
    Load<0>(sums, kStride);
    Load<1>(sums + kTileColumns, kStride);
    Load<2>(sums + kTileRows * kSumsBlock, kStride);
    Load<3>(sums + kTileRows * kSumsBlock + kTileColumns, kStride);
  }
  template <bool kTwo>
  void Step(const BFloat16* a, int64_t a_stride, const BFloat16* b) {
    constexpr int64_t kStride = kTileDepth * sizeof(BFloat16);
    Load<4>(a, kStride);
    Load<6>(b, kStride);
    Multiply<0, 4, 6>();
    Load<7>(b + kTileElements, kStride);
    Multiply<1, 4, 7>();
    if constexpr (kTwo) {
      Load<5>(a + a_stride, kStride);
      Multiply<2, 5, 6>();
      Multiply<3, 5, 7>();
    }
  }
  template <bool kTwo>
  void End(float* sums) const {
    Store<0>(sums);
    Store<1>(sums + kTileColumns);
    if constexpr (kTwo) {
      Store<2>(sums + kTileRows * kSumsBlock);
      Store<3>(sums + kTileRows * kSumsBlock + kTileColumns);
    }
  }

 private:
  // The compiler's intrinsics take the tile number as macro text, not as a template argument. They
  // also do not declare that they read memory.
  template <int kTile>
  static void Load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kTile), "r"(from), "r"(stride) : "memory");
  }
  template <int kTile>
  static void Store(float* to) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kTile), "r"(to),
                 "r"(kSumsBlock * sizeof(float))
                 : "memory");
  }
  template <int kSums, int kA, int kB>
  static void Multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
  }
};
#endif

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_TILE_OPS_H_
