// The register tile for products of few rows, which are bound by loading B from memory. It passes
// over K once, with several panels side by side. Included once per instruction set, after
// ops/linear/gemm_tile-inl.h.
#if defined(CHAIRLIFT_OPS_LINEAR_FEW_ROWS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CHAIRLIFT_OPS_LINEAR_FEW_ROWS_TILE_INL_H_
#undef CHAIRLIFT_OPS_LINEAR_FEW_ROWS_TILE_INL_H_
#else
#define CHAIRLIFT_OPS_LINEAR_FEW_ROWS_TILE_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "ops/linear/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {

// kFewRowsSums: vectors of sums that stay in registers. kFewRows: the most rows that this tile
// supports; zero without vectors. PanelsAtOnce(): the panels that fit side by side.
constexpr int kFewRowsSums = kWideFile ? 24 : 12;
constexpr int kFewRows = kPanelVectors > 4 ? 0 : std::min(8, kFewRowsSums / kPanelVectors);
constexpr int kMostPanels = 4;
constexpr int PanelsAtOnce(int rows) {
  return std::clamp(kFewRowsSums / (rows * kPanelVectors), 1, kMostPanels);
}
// Up to this many rows the hardware prefetcher keeps up, and software prefetches only occupy its
// slots. With more rows, B is brought into the second-level cache this far before its use, in rows
// of a panel.
constexpr int kRowsFetchedByHardware = 4;
constexpr int64_t kFewRowsAhead = 96;

// C [R, P panels] = A·B. Panels of B are panel_stride floats apart, and those of C c_panel_stride.
template <int R, int P>
HWY_NOINLINE void FewRowsTile(const float* HWY_RESTRICT a, size_t a_stride,
                              const float* HWY_RESTRICT b, size_t panel_stride,
                              float* HWY_RESTRICT c, size_t c_stride, size_t c_panel_stride,
                              int64_t k) {
  V sums[R][P][kPanelVectors];
  CHAIRLIFT_UNROLL
  for (int r = 0; r < R; ++r) {
    CHAIRLIFT_UNROLL
    for (int p = 0; p < P; ++p) {
      CHAIRLIFT_UNROLL
      for (int v = 0; v < kPanelVectors; ++v) sums[r][p][v] = hn::Zero(kD);
    }
  }
  for (int64_t i = 0; i < k; ++i, b += kGemmPanel) {
    if constexpr (R > kRowsFetchedByHardware) {
      CHAIRLIFT_UNROLL
      for (int p = 0; p < P; ++p) {
        CHAIRLIFT_UNROLL
        for (int line = 0; line < kGemmPanel; line += 16) {
          __builtin_prefetch(b + p * panel_stride + kFewRowsAhead * kGemmPanel + line, 0, 2);
        }
      }
    }
    V factors[R];
    CHAIRLIFT_UNROLL
    for (int r = 0; r < R; ++r) factors[r] = hn::Set(kD, a[r * a_stride + i]);
    CHAIRLIFT_UNROLL
    for (int p = 0; p < P; ++p) {
      CHAIRLIFT_UNROLL
      for (int v = 0; v < kPanelVectors; ++v) {
        const V weights = hn::LoadU(kD, b + p * panel_stride + v * kLanes);
        CHAIRLIFT_UNROLL
        for (int r = 0; r < R; ++r) sums[r][p][v] = hn::MulAdd(factors[r], weights, sums[r][p][v]);
      }
    }
  }
  CHAIRLIFT_UNROLL
  for (int r = 0; r < R; ++r) {
    CHAIRLIFT_UNROLL
    for (int p = 0; p < P; ++p) {
      CHAIRLIFT_UNROLL
      for (int v = 0; v < kPanelVectors; ++v) {
        hn::StoreU(sums[r][p][v], kD, c + r * c_stride + p * c_panel_stride + v * kLanes);
      }
    }
  }
}

using FewRowsFunction = void (*)(const float*, size_t, const float*, size_t, float*, size_t, size_t,
                                 int64_t);
// Indexed by panels − 1; null if that many do not fit.
using FewRowsTiles = std::array<FewRowsFunction, kMostPanels>;

template <int R, int P>
constexpr FewRowsFunction FewRowsTileOrNull() {
  if constexpr (P <= PanelsAtOnce(R)) return &FewRowsTile<R, P>;
  return nullptr;
}
template <int R, int... kPanel>
constexpr FewRowsTiles TilesOfRows(std::integer_sequence<int, kPanel...>) {
  return {FewRowsTileOrNull<R, kPanel + 1>()...};
}
template <int... kRow>
constexpr std::array<FewRowsTiles, kFewRows> AllFewRowsTiles(std::integer_sequence<int, kRow...>) {
  return {TilesOfRows<kRow + 1>(std::make_integer_sequence<int, kMostPanels>())...};
}
// Indexed by rows − 1.
constexpr auto kFewRowsTiles = AllFewRowsTiles(std::make_integer_sequence<int, kFewRows>());

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#endif  // CHAIRLIFT_OPS_LINEAR_FEW_ROWS_TILE_INL_H_
