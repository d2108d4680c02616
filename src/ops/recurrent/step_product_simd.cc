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
#include "ops/linear/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace {

// K in blocks whose slice of a tile's rows stays in the first-level cache.
constexpr int64_t kProductBlockK = 512;
// Steps of K between prefetches.
constexpr int64_t kFetchSteps = 4;

// What a tile brings into the second-level cache, every kFetchSteps steps of K.
struct Fetch {
  const float* panel;  // so many lines of it
  int lines;
  const float* const* wanted;  // and one of these, up to the end
  const float* const* wanted_end;

  HWY_INLINE void Some() {
    for (int i = 0; i < lines; ++i, panel += 16) __builtin_prefetch(panel, 0, 2);
    if (wanted != wanted_end) {
      __builtin_prefetch(*wanted, 0, 2);
      __builtin_prefetch(*wanted + 16, 0, 2);
      ++wanted;
    }
  }
};

// C [R, NV vectors] (+)= A · panel over `kb` steps.
template <int R, int NV>
HWY_INLINE void FetchingTile(const float* HWY_RESTRICT a, size_t a_stride,
                             const float* HWY_RESTRICT b, float* HWY_RESTRICT c, size_t c_stride,
                             int64_t kb, bool accumulate, Fetch fetch) {
  V sums[R][NV];
  CHAIRLIFT_UNROLL
  for (int r = 0; r < R; ++r) {
    CHAIRLIFT_UNROLL
    for (int v = 0; v < NV; ++v) sums[r][v] = hn::Zero(kD);
  }
  const auto step = [&](int64_t k) HWY_ATTR {
    V weights[NV];
    CHAIRLIFT_UNROLL
    for (int v = 0; v < NV; ++v) weights[v] = hn::LoadU(kD, b + v * kLanes);
    b += kGemmPanel;
    CHAIRLIFT_UNROLL
    for (int r = 0; r < R; ++r) {
      const V factor = hn::Set(kD, a[r * a_stride + k]);
      CHAIRLIFT_UNROLL
      for (int v = 0; v < NV; ++v) sums[r][v] = hn::MulAdd(factor, weights[v], sums[r][v]);
    }
  };
  int64_t k = 0;
  for (; k + kFetchSteps <= kb; k += kFetchSteps) {
    fetch.Some();
    CHAIRLIFT_UNROLL
    for (int u = 0; u < kFetchSteps; ++u) step(k + u);
  }
  for (; k < kb; ++k) step(k);
  CHAIRLIFT_UNROLL
  for (int r = 0; r < R; ++r) {
    CHAIRLIFT_UNROLL
    for (int v = 0; v < NV; ++v) {
      float* at = c + r * c_stride + v * kLanes;
      V sum = sums[r][v];
      if (accumulate) sum = hn::Add(sum, hn::LoadU(kD, at));
      hn::StoreU(sum, kD, at);
    }
  }
}

template <int R>
HWY_NOINLINE void FetchingRows(const float* a, size_t a_stride, const float* b, float* c,
                               size_t c_stride, int64_t kb, bool accumulate, const Fetch& fetch) {
  constexpr int kVectors = kWideFile ? kPanelVectors : std::min(kPanelVectors, 2);
  constexpr Fetch kNone = {};
  for (int v = 0; v < kPanelVectors; v += kVectors) {
    FetchingTile<R, kVectors>(a, a_stride, b + v * kLanes, c + v * kLanes, c_stride, kb, accumulate,
                              v == 0 ? fetch : kNone);
  }
}

using FetchingFunction = void (*)(const float*, size_t, const float*, float*, size_t, int64_t, bool,
                                  const Fetch&);
template <int... kRow>
constexpr std::array<FetchingFunction, sizeof...(kRow)> FetchingTable(
    std::integer_sequence<int, kRow...>) {
  return {FetchingRows<kRow + 1>...};
}
constexpr auto kFetchingTable = FetchingTable(std::make_integer_sequence<int, kMaxRows>());

void Product(const StepProduct& x) {
  const int64_t tiles = (x.rows + kMaxRows - 1) / kMaxRows;
  const int64_t k_blocks = std::max<int64_t>(1, (x.k + kProductBlockK - 1) / kProductBlockK);
  const int64_t calls = k_blocks * x.panels * tiles;
  int64_t call = 0;
  for (int64_t k_block = 0; k_block < k_blocks; ++k_block) {
    const int64_t k0 = x.k * k_block / k_blocks;
    const int64_t kb = x.k * (k_block + 1) / k_blocks - k0;
    // Lines of the next panel that each tile brings.
    const int64_t share = (kb * kGemmPanel / 16 + tiles - 1) / tiles;
    for (int64_t panel = 0; panel < x.panels; ++panel) {
      const float* b = x.packed + (panel * x.k + k0) * kGemmPanel;
      const float* next = panel + 1 < x.panels     ? b + x.k * kGemmPanel
                          : k_block + 1 < k_blocks ? x.packed + (k0 + kb) * kGemmPanel
                                                   : x.next_packed;
      for (int64_t tile = 0; tile < tiles; ++tile, ++call) {
        const int64_t r0 = x.rows * tile / tiles;
        const int64_t count = x.rows * (tile + 1) / tiles - r0;
        Fetch fetch = {};
        if (next != nullptr && kb > 0) {
          fetch.panel = next + tile * share * 16;
          fetch.lines = static_cast<int>((share * kFetchSteps + kb - 1) / kb);
        }
        fetch.wanted = x.wanted + x.num_wanted * call / calls;
        fetch.wanted_end = x.wanted + x.num_wanted * (call + 1) / calls;
        kFetchingTable[count - 1](x.a + r0 * x.a_stride + k0, x.a_stride, b,
                                  x.c + r0 * x.c_stride + panel * kGemmPanel, x.c_stride, kb,
                                  k_block > 0, fetch);
      }
    }
  }
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(Product);

void Compute(const StepProduct& product) {
  if (product.rows > kFewStepRows) {
    HWY_DYNAMIC_DISPATCH(Product)(product);
    return;
  }
  PackedGemm({product.a, product.a_stride, 1, product.packed, product.c, product.c_stride},
             product.rows, product.k, product.panels * kGemmPanel, 0, product.panels, {});
}

}  // namespace chairlift
#endif  // HWY_ONCE
