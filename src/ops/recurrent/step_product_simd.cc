// The kernel of step_product.h, one build per instruction set.
#include <algorithm>
#include <array>
#include <utility>

#include "ops/recurrent/step_product.h"
#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/recurrent/step_product_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/linear/few_rows_tile-inl.h"
#include "ops/linear/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace {

// K in blocks whose slice of a tile's rows stays in the first-level cache.
constexpr int64_t kProductBlockK = 512;

void Product(const StepProduct& x) {
  const int64_t tiles = (x.rows + kMaxRows - 1) / kMaxRows;
  const int64_t k_blocks = std::max<int64_t>(1, (x.k + kProductBlockK - 1) / kProductBlockK);
  const int64_t calls = k_blocks * x.panels * tiles;
  int64_t call = 0;
  for (int64_t k_block = 0; k_block < k_blocks; ++k_block) {
    const int64_t k0 = x.k * k_block / k_blocks;
    const int64_t kb = x.k * (k_block + 1) / k_blocks - k0;
    for (int64_t panel = 0; panel < x.panels; ++panel) {
      const float* b = x.packed + (panel * x.k + k0) * kGemmPanel;
      const float* next = panel + 1 < x.panels     ? b + x.k * kGemmPanel
                          : k_block + 1 < k_blocks ? x.packed + (k0 + kb) * kGemmPanel
                                                   : x.next_packed;
      for (int64_t tile = 0; tile < tiles; ++tile, ++call) {
        const int64_t r0 = x.rows * tile / tiles;
        const int64_t count = x.rows * (tile + 1) / tiles - r0;
        Fetch fetch = FetchPanel(next, kb, tile, tiles);
        fetch.places = x.wanted + x.num_wanted * call / calls;
        fetch.places_end = x.wanted + x.num_wanted * (call + 1) / calls;
        if (x.num_wanted > 0) {
          const int64_t places = fetch.places_end - fetch.places;
          const int64_t times = std::max<int64_t>(1, kb / kFetchSteps);
          fetch.places_at_once = static_cast<int>((places + times - 1) / times);
        }
        const bool half = x.half && panel + 1 == x.panels;
        (half ? kHalfPanelTable : kPanelTable)[count - 1](
            x.a + r0 * x.a_stride + k0, x.a_stride, b, x.c + r0 * x.c_stride + panel * kGemmPanel,
            x.c_stride, kb, k_block > 0, nullptr, fetch);
      }
    }
  }
}

// False if there are too many rows.
bool FewRowsProduct(const StepProduct& x) {
  if constexpr (kFewRows > 0) {
    if (x.rows > kFewRows) return false;
    const int64_t at_once = PanelsAtOnce(static_cast<int>(x.rows));
    const FewRowsTiles& tiles = kFewRowsTiles[x.rows - 1];
    for (int64_t panel = 0; panel < x.panels;) {
      const int64_t count = std::min(at_once, x.panels - panel);
      tiles[count - 1](x.a, x.a_stride, x.packed + panel * x.panel_stride, x.panel_stride,
                       x.c + panel * x.c_panel_stride, x.c_stride, x.c_panel_stride, x.k);
      panel += count;
    }
    return true;
  }
  return false;
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(Product);
HWY_EXPORT(FewRowsProduct);

void Compute(const StepProduct& product) {
  if (product.rows > kFewStepRows) {
    HWY_DYNAMIC_DISPATCH(Product)(product);
    return;
  }
  StepProduct x = product;
  if (x.panel_stride == 0) x.panel_stride = x.k * kGemmPanel;
  if (x.c_panel_stride == 0) x.c_panel_stride = kGemmPanel;
  if (HWY_DYNAMIC_DISPATCH(FewRowsProduct)(x)) return;
  for (int64_t panel = 0; panel < x.panels; ++panel) {
    PackedGemm({x.a, x.a_stride, 1, x.packed + panel * x.panel_stride,
                x.c + panel * x.c_panel_stride, x.c_stride},
               x.rows, x.k, kGemmPanel, 0, 1, {});
  }
}

}  // namespace chairlift
#endif  // HWY_ONCE
