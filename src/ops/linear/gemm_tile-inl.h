// The register tile of matrix products and Winograd convolution: rows of A times one packed panel.
// Included once per instruction set from *_simd.cc files, after ops/simd_targets.h.
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
#include "ops/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {

using V = FloatVec;

constexpr FloatTag kD;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(kD));
// Vectors per panel, and rows of the widest tile that the register file can hold.
constexpr int kPanelVectors = static_cast<int>(kGemmPanel) / kLanes;
constexpr bool kWideFile = kLanes == 16;
constexpr int kMaxRows = kWideFile ? 14 : 6;

// The memory that a tile prefetches into the second-level cache, every kFetchSteps steps of K. This
// is consecutive lines of a panel that is read later, and scattered places of 128 bytes.
struct Fetch {
  const float* panel = nullptr;  // consecutive lines of it
  int lines = 0;
  const float* const* places = nullptr;  // pointers to places, up to the end
  const float* const* places_end = nullptr;
  int places_at_once = 1;

  HWY_INLINE void Some() {
    for (int i = 0; i < lines; ++i, panel += 16) __builtin_prefetch(panel, 0, 2);
    if (places == places_end) return;
    for (int i = 0; i < places_at_once && places != places_end; ++i, ++places) {
      __builtin_prefetch(*places, 0, 2);
      __builtin_prefetch(*places + 16, 0, 2);
    }
  }
};
constexpr int kFetchSteps = 4;

// The part of `panel` that tile `tile` of `tiles` prefetches. The panel, like each tile, has `kb`
// steps.
HWY_INLINE Fetch FetchPanel(const float* panel, int64_t kb, int64_t tile, int64_t tiles) {
  if (panel == nullptr || kb == 0) return {};
  const int64_t share = (kb * kGemmPanel / 16 + tiles - 1) / tiles;
  return {.panel = panel + tile * share * 16,
          .lines = static_cast<int>((share * kFetchSteps + kb - 1) / kb)};
}

// C[R, NV vectors] = A·panel over `kb` steps, plus C if `accumulate`, plus `bias` in every row if
// it is not null. Small tiles use U > 1 independent sums over K to hide the latency of a
// multiply-add.
template <int R, int NV, int U>
HWY_INLINE void Tile(const float* HWY_RESTRICT a, size_t a_stride, const float* HWY_RESTRICT b,
                     float* HWY_RESTRICT c, size_t c_stride, int64_t kb, bool accumulate,
                     const float* HWY_RESTRICT bias, Fetch fetch) {
  // C is needed last, so it is prefetched now.
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
        sums[u][r][v] = u == 0 && bias != nullptr ? hn::LoadU(kD, bias + v * kLanes) : hn::Zero(kD);
      }
    }
  }
  const auto step = [&](int64_t k, int u) HWY_ATTR {
    V weights[NV];
    CHAIRLIFT_UNROLL
    for (int v = 0; v < NV; ++v) {
      weights[v] = hn::LoadU(kD, b + v * kLanes);
      // With few rows the loop waits for memory, and the hardware prefetcher is not far enough
      // ahead.
      if constexpr (U > 1) hwy::Prefetch(b + v * kLanes + 1024);
    }
    b += kGemmPanel;
    CHAIRLIFT_UNROLL
    for (int r = 0; r < R; ++r) {
      const V factor = hn::Set(kD, a[r * a_stride + k]);
      CHAIRLIFT_UNROLL
      for (int v = 0; v < NV; ++v) sums[u][r][v] = hn::MulAdd(factor, weights[v], sums[u][r][v]);
    }
  };
  constexpr int kSteps = U == 1 ? kFetchSteps : U;
  int64_t k = 0;
  for (; k + kSteps <= kb; k += kSteps) {
    if constexpr (U == 1) fetch.Some();
    CHAIRLIFT_UNROLL
    for (int i = 0; i < kSteps; ++i) step(k + i, i % U);
  }
  for (; k < kb; ++k) step(k, 0);
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

// R rows of a panel's first NV vectors.
template <int R, int NV>
HWY_NOINLINE void PanelRows(const float* a, size_t a_stride, const float* b, float* c,
                            size_t c_stride, int64_t kb, bool accumulate, const float* bias,
                            const Fetch& fetch) {
  if constexpr (kWideFile) {
    constexpr int kUnroll = R == 1 ? 8 : R == 2 ? 4 : R <= 4 ? 2 : 1;
    Tile<R, NV, kUnroll>(a, a_stride, b, c, c_stride, kb, accumulate, bias, fetch);
  } else if constexpr (R <= 2 && NV == 4) {
    Tile<R, 4, R == 1 ? 2 : 1>(a, a_stride, b, c, c_stride, kb, accumulate, bias, fetch);
  } else {
    for (int v = 0; v < NV; v += 2) {
      Tile<R, 2, 1>(a, a_stride, b + v * kLanes, c + v * kLanes, c_stride, kb, accumulate,
                    bias == nullptr ? nullptr : bias + v * kLanes, v == 0 ? fetch : Fetch{});
    }
  }
}

using PanelFunction = void (*)(const float*, size_t, const float*, float*, size_t, int64_t, bool,
                               const float*, const Fetch&);

template <int NV, int... R>
constexpr std::array<PanelFunction, sizeof...(R)> PanelTable(std::integer_sequence<int, R...>) {
  return {PanelRows<R + 1, NV>...};
}
// Indexed by rows − 1: for whole panels, and for their first kHalfPanel columns only.
constexpr auto kPanelTable = PanelTable<kPanelVectors>(std::make_integer_sequence<int, kMaxRows>());
constexpr auto kHalfPanelTable =
    PanelTable<kPanelVectors / 2>(std::make_integer_sequence<int, kMaxRows>());

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#endif  // CHAIRLIFT_OPS_LINEAR_GEMM_TILE_INL_H_
