// The register tile that matrix products and Winograd convolution share: rows of A by one packed
// panel. Included once per instruction set from *_simd.cc files, after ops/simd_targets.h.
#if defined(CHAIRLIFT_OPS_LINEAR_GEMM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CHAIRLIFT_OPS_LINEAR_GEMM_TILE_INL_H_
#undef CHAIRLIFT_OPS_LINEAR_GEMM_TILE_INL_H_
#else
#define CHAIRLIFT_OPS_LINEAR_GEMM_TILE_INL_H_
#endif

#include <array>
#include <cstdint>
#include <utility>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "ops/linear/packed_gemm.h"
#include "ops/simd_math-inl.h"

#ifndef CHAIRLIFT_UNROLL
#if defined(__clang__)
#define CHAIRLIFT_UNROLL _Pragma("clang loop unroll(full)")
#else
#define CHAIRLIFT_UNROLL _Pragma("GCC unroll 32")
#endif
#endif

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {

using V = FloatVec;

constexpr FloatTag kD;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(kD));
// Vectors to a panel, and rows of the widest tile: what the register file holds.
constexpr int kPanelVectors = static_cast<int>(kGemmPanel) / kLanes;
constexpr bool kWideFile = kLanes == 16;
constexpr int kMaxRows = kWideFile ? 14 : 6;
// C[R, 2 or more vectors] (+)= A·panel over `kb` steps, with U independent sums over K where the
// tile alone has too few to hide the latency of a multiply-add.
template <int R, int NV, int U>
HWY_INLINE void Tile(const float* HWY_RESTRICT a, size_t a_stride, const float* HWY_RESTRICT b,
                     float* HWY_RESTRICT c, size_t c_stride, int64_t kb, bool accumulate) {
  // C is needed last: it comes into the cache meanwhile.
  for (int r = 0; r < R; ++r) {
    CHAIRLIFT_UNROLL
    for (int v = 0; v < NV; v += 16 / kLanes) hwy::Prefetch(c + r * c_stride + v * kLanes);
  }
  V sums[U][R][NV];
  CHAIRLIFT_UNROLL
  for (int u = 0; u < U; ++u) {
    CHAIRLIFT_UNROLL
    for (int r = 0; r < R; ++r) {
      CHAIRLIFT_UNROLL
      for (int v = 0; v < NV; ++v) {
        sums[u][r][v] = hn::Zero(kD);
      }
    }
  }
  int64_t k = 0;
  for (; k + U <= kb; k += U) {
    CHAIRLIFT_UNROLL
    for (int u = 0; u < U; ++u) {
      V bv[NV];
      CHAIRLIFT_UNROLL
      for (int v = 0; v < NV; ++v) {
        bv[v] = hn::LoadU(kD, b + u * kGemmPanel + v * kLanes);
        // Few rows wait for memory, and the hardware's own fetching is not far enough ahead; with
        // more rows it is, and ours only takes load slots.
        if constexpr (U > 1) hwy::Prefetch(b + u * kGemmPanel + v * kLanes + 1024);
      }
      CHAIRLIFT_UNROLL
      for (int r = 0; r < R; ++r) {
        const V av = hn::Set(kD, a[r * a_stride + k + u]);
        CHAIRLIFT_UNROLL
        for (int v = 0; v < NV; ++v) sums[u][r][v] = hn::MulAdd(av, bv[v], sums[u][r][v]);
      }
    }
    b += U * kGemmPanel;
  }
  for (; k < kb; ++k, b += kGemmPanel) {
    CHAIRLIFT_UNROLL
    for (int r = 0; r < R; ++r) {
      const V av = hn::Set(kD, a[r * a_stride + k]);
      CHAIRLIFT_UNROLL
      for (int v = 0; v < NV; ++v) {
        sums[0][r][v] = hn::MulAdd(av, hn::LoadU(kD, b + v * kLanes), sums[0][r][v]);
      }
    }
  }
  CHAIRLIFT_UNROLL
  for (int r = 0; r < R; ++r) {
    CHAIRLIFT_UNROLL
    for (int v = 0; v < NV; ++v) {
      V sum = sums[0][r][v];
      CHAIRLIFT_UNROLL
      for (int u = 1; u < U; ++u) sum = hn::Add(sum, sums[u][r][v]);
      float* at = c + r * c_stride + v * kLanes;
      if (accumulate) sum = hn::Add(sum, hn::LoadU(kD, at));
      hn::StoreU(sum, kD, at);
    }
  }
}

// One panel, R rows, whatever the width of a vector.
template <int R>
HWY_NOINLINE void PanelRows(const float* a, size_t a_stride, const float* b, float* c,
                            size_t c_stride, int64_t kb, bool accumulate) {
  if constexpr (kWideFile) {
    constexpr int kUnroll = R == 1 ? 8 : R == 2 ? 4 : R <= 4 ? 2 : 1;
    Tile<R, kPanelVectors, kUnroll>(a, a_stride, b, c, c_stride, kb, accumulate);
  } else if constexpr (R <= 2 && kPanelVectors == 4) {
    Tile<R, 4, R == 1 ? 2 : 1>(a, a_stride, b, c, c_stride, kb, accumulate);
  } else {
    for (int v = 0; v < kPanelVectors; v += 2) {
      Tile<R, 2, 1>(a, a_stride, b + v * kLanes, c + v * kLanes, c_stride, kb, accumulate);
    }
  }
}

using PanelFunction = void (*)(const float*, size_t, const float*, float*, size_t, int64_t, bool);

template <int... R>
constexpr std::array<PanelFunction, sizeof...(R)> PanelTable(std::integer_sequence<int, R...>) {
  return {PanelRows<R + 1>...};
}
constexpr auto kPanelTable = PanelTable(std::make_integer_sequence<int, kMaxRows>());

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#endif  // CHAIRLIFT_OPS_LINEAR_GEMM_TILE_INL_H_
