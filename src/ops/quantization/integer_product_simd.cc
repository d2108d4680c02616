// Products of widened matrices: tiles of rows × one panel whose sums stay in registers over k.
#include "ops/quantization/integer_product.h"
#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/quantization/integer_product_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
constexpr int kMaxRows = 1;
#else
using Sums = hn::CappedTag<int32_t, kIntegerPanel>;
using Pairs = hn::Repartition<int16_t, Sums>;
constexpr int kVectors = static_cast<int>(kIntegerPanel / hn::MaxLanes(Sums()));
// As many rows as the registers hold.
constexpr int kMaxRows = HWY_TARGET <= HWY_AVX3 ? 12 : kVectors <= 4 ? 3 : 1;
#endif

// sums [kRows, 32], rows `stride` apart.
template <int kRows>
HWY_NOINLINE void Tile(const int16_t* a, int64_t a_stride, const int16_t* b, int64_t pairs,
                       int32_t* sums, int64_t stride) {
#if HWY_TARGET == HWY_SCALAR
  (void)a_stride;
  (void)stride;
  static_assert(kRows == 1);
  uint32_t row[kIntegerPanel] = {};
  for (int64_t i = 0; i < pairs; ++i, b += 2 * kIntegerPanel) {
    for (int64_t c = 0; c < kIntegerPanel; ++c) {
      row[c] += static_cast<uint32_t>(a[2 * i] * b[2 * c] + a[2 * i + 1] * b[2 * c + 1]);
    }
  }
  std::memcpy(sums, row, sizeof(row));
#else
  const Sums d;
  const Pairs d16;
  constexpr int64_t kLanes = kIntegerPanel / kVectors;
  // For each pair of products, some instruction sets add one to each of two sums.
  hn::Vec<Sums> even[kRows][kVectors];
  hn::Vec<Sums> odd[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) even[r][v] = odd[r][v] = hn::Zero(d);
  }
  for (int64_t i = 0; i < pairs; ++i, b += 2 * kIntegerPanel) {
    hn::Vec<Pairs> weights[kVectors];
    for (int v = 0; v < kVectors; ++v) weights[v] = hn::LoadU(d16, b + 2 * v * kLanes);
    for (int r = 0; r < kRows; ++r) {
      int32_t pair;
      std::memcpy(&pair, a + r * a_stride + 2 * i, sizeof(pair));
      const auto factor = hn::BitCast(d16, hn::Set(d, pair));
      for (int v = 0; v < kVectors; ++v) {
        even[r][v] = hn::ReorderWidenMulAccumulate(d, factor, weights[v], even[r][v], odd[r][v]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(hn::RearrangeToOddPlusEven(even[r][v], odd[r][v]), d,
                 sums + r * stride + v * kLanes);
    }
  }
#endif
}

using TileFunction = void (*)(const int16_t*, int64_t, const int16_t*, int64_t, int32_t*, int64_t);

// Indexed by rows − 1.
template <int... kRow>
constexpr std::array<TileFunction, sizeof...(kRow)> Tiles(std::integer_sequence<int, kRow...>) {
  return {&Tile<kRow + 1>...};
}

void Product(const int16_t* a, const int16_t* b, int64_t m, int64_t n, int64_t k, int64_t first,
             int64_t last, int32_t* sums, int64_t stride) {
  static constexpr auto kTiles = Tiles(std::make_integer_sequence<int, kMaxRows>());
  const int64_t a_stride = WideRowStride(k);
  const int64_t pairs = (k + 1) / 2;
  const int64_t groups = (m + kMaxRows - 1) / kMaxRows;
  for (int64_t panel = first; panel < last; ++panel) {
    const int64_t column = panel * kIntegerPanel;
    const int64_t columns = std::min(kIntegerPanel, n - column);
    const int16_t* weights = b + panel * pairs * 2 * kIntegerPanel;
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t row = m * group / groups;
      const auto rows = static_cast<int>(m * (group + 1) / groups - row);
      int32_t* to = sums + row * stride + column;
      if (columns == kIntegerPanel) {
        kTiles[rows - 1](a + row * a_stride, a_stride, weights, pairs, to, stride);
        continue;
      }
      alignas(64) int32_t edge[kMaxRows * kIntegerPanel];
      kTiles[rows - 1](a + row * a_stride, a_stride, weights, pairs, edge, kIntegerPanel);
      for (int r = 0; r < rows; ++r) {
        std::copy_n(edge + r * kIntegerPanel, columns, to + r * stride);
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

void IntegerProduct(const int16_t* a, const int16_t* b, int64_t m, int64_t n, int64_t k,
                    int64_t first, int64_t last, int32_t* sums, int64_t stride) {
  HWY_DYNAMIC_DISPATCH(Product)(a, b, m, n, k, first, last, sums, stride);
}

}  // namespace chairlift
#endif  // HWY_ONCE
