// The kernels of blockwise.h: register tiles of rows by half a panel, whose sums stay in registers
// over a block.
#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/quantization/blockwise_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "hwy/highway.h"
#include "ops/linear/gemm_epilogue-inl.h"
#include "ops/quantization/blockwise.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace {

constexpr hn::RebindToSigned<FloatTag> kInts;
constexpr hn::RebindToUnsigned<FloatTag> kWords;
// Vectors side by side, and the rows that the registers hold beside them.
constexpr int kVectors = 2;
constexpr int kTileRows = kWideFile ? 12 : 5;

// The values of entry kEntry of each word, before scale and shift.
template <int kBits, int kEntry>
HWY_INLINE V Number(hn::Vec<decltype(kWords)> words) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (kBits == 4) {
    // A lookup reads only the lowest four bits of a word.
    alignas(64) static constexpr float kNumbers[16] = {0,  1,  2,  3,  4,  5,  6,  7,
                                                       -8, -7, -6, -5, -4, -3, -2, -1};
    return V{
        _mm512_permutexvar_ps(hn::ShiftRight<4 * kEntry>(words).raw, _mm512_load_ps(kNumbers))};
  }
#endif
  const auto up = hn::BitCast(kInts, hn::ShiftLeft<32 - kBits*(kEntry + 1)>(words));
  return hn::ConvertTo(kD, hn::ShiftRight<32 - kBits>(up));
}

// Calls step.template operator()<place in its word>(k, values of kVectors vectors) for each entry k
// of a block, for the columns from v0 vectors on.
template <int kBits, typename Step>
HWY_INLINE void ForEntries(const uint32_t* codes, int64_t block, int v0, Step step) {
  constexpr int kEntries = 32 / kBits;  // per word
  const auto at_entry = [&]<int kEntry>(int64_t k, const auto& words) HWY_ATTR {
    V numbers[kVectors];
    CHAIRLIFT_UNROLL
    for (int v = 0; v < kVectors; ++v) numbers[v] = Number<kBits, kEntry>(words[v]);
    step.template operator()<kEntry>(k + kEntry, numbers);
  };
  for (int64_t k = 0; k < block; k += kEntries, codes += kGemmPanel) {
    std::array<hn::Vec<decltype(kWords)>, kVectors> words;
    CHAIRLIFT_UNROLL
    for (int v = 0; v < kVectors; ++v) words[v] = hn::LoadU(kWords, codes + (v0 + v) * kLanes);
    [&]<int... kEntry>(std::integer_sequence<int, kEntry...>) HWY_ATTR {
      (at_entry.template operator()<kEntry>(k, words), ...);
    }
    (std::make_integer_sequence<int, kEntries>());
  }
}

// c [R, 32], rows c_stride apart, for one panel.
template <int R, int kBits, bool kShifted>
HWY_NOINLINE void TileOfPanel(const float* HWY_RESTRICT a, int64_t a_stride,
                              const float* HWY_RESTRICT sums, int64_t blocks, int64_t block,
                              const uint32_t* HWY_RESTRICT panel, float* HWY_RESTRICT c,
                              int64_t c_stride) {
  // A single row waits for its own sums, so alternate entries go to separate sums.
  constexpr int kChains = R == 1 ? 2 : 1;
  const int64_t code_words = block * kBits / 32 * kGemmPanel;
  for (int v0 = 0; v0 < kPanelVectors; v0 += kVectors) {
    V total[R][kVectors];
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < kVectors; ++v) total[r][v] = hn::Zero(kD);
    }
    const uint32_t* at = panel;
    for (int64_t b = 0; b < blocks; ++b) {
      const auto* scales = reinterpret_cast<const float*>(at) + v0 * kLanes;
      at += kGemmPanel * (kShifted ? 2 : 1);
      V sum[kChains][R][kVectors];
      CHAIRLIFT_UNROLL
      for (int chain = 0; chain < kChains; ++chain) {
        CHAIRLIFT_UNROLL
        for (int r = 0; r < R; ++r) {
          CHAIRLIFT_UNROLL
          for (int v = 0; v < kVectors; ++v) sum[chain][r][v] = hn::Zero(kD);
        }
      }
      const float* from = a + b * block;
      ForEntries<kBits>(at, block, v0, [&]<int kEntry>(int64_t k, const V* numbers) HWY_ATTR {
        CHAIRLIFT_UNROLL
        for (int r = 0; r < R; ++r) {
          const V factor = hn::Set(kD, from[r * a_stride + k]);
          CHAIRLIFT_UNROLL
          for (int v = 0; v < kVectors; ++v) {
            V& to = sum[kEntry % kChains][r][v];
            to = hn::MulAdd(factor, numbers[v], to);
          }
        }
      });
      at += code_words;
      CHAIRLIFT_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const V scale = hn::LoadU(kD, scales + v * kLanes);
        CHAIRLIFT_UNROLL
        for (int r = 0; r < R; ++r) {
          V of_block = sum[0][r][v];
          if constexpr (kChains == 2) of_block = hn::Add(of_block, sum[kChains - 1][r][v]);
          total[r][v] = hn::MulAdd(of_block, scale, total[r][v]);
        }
        if constexpr (kShifted) {
          const V shift = hn::LoadU(kD, scales + kGemmPanel + v * kLanes);
          CHAIRLIFT_UNROLL
          for (int r = 0; r < R; ++r) {
            total[r][v] = hn::MulAdd(hn::Set(kD, sums[r * blocks + b]), shift, total[r][v]);
          }
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        hn::StoreU(total[r][v], kD, c + r * c_stride + (v0 + v) * kLanes);
      }
    }
  }
}

using TileFunction = void (*)(const float*, int64_t, const float*, int64_t, int64_t,
                              const uint32_t*, float*, int64_t);
template <int kBits, bool kShifted, int... kRow>
constexpr std::array<TileFunction, sizeof...(kRow)> Tiles(std::integer_sequence<int, kRow...>) {
  return {TileOfPanel<kRow + 1, kBits, kShifted>...};
}
// Indexed by rows − 1.
template <int kBits, bool kShifted>
constexpr auto kTiles = Tiles<kBits, kShifted>(std::make_integer_sequence<int, kTileRows>());

void MultiplyBlockwise(const BlockwiseWeights& w, const BlockwiseOperands& x, int64_t rows,
                       int64_t first, int64_t last, const GemmEpilogue& epilogue) {
  const BlockwiseShape& s = w.shape;
  const auto& tiles = s.bits == 8 ? (w.shifted ? kTiles<8, true> : kTiles<8, false>)
                                  : (w.shifted ? kTiles<4, true> : kTiles<4, false>);
  const int64_t parts = (rows + kTileRows - 1) / kTileRows;
  for (int64_t panel = first; panel < last; ++panel) {
    const int64_t column = panel * kGemmPanel;
    const int64_t columns = std::min(kGemmPanel, s.n - column);
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t r0 = rows * part / parts;
      const int64_t count = rows * (part + 1) / parts - r0;
      const float* sums = w.shifted ? x.sums + r0 * s.blocks() : nullptr;
      float* c = x.c + r0 * x.c_stride + column;
      float edge[kTileRows * kGemmPanel];
      const bool whole = columns == kGemmPanel;
      tiles[count - 1](x.a + r0 * x.a_stride, x.a_stride, sums, s.blocks(), s.block, w.panel(panel),
                       whole ? c : edge, whole ? x.c_stride : kGemmPanel);
      for (int64_t r = 0; !whole && r < count; ++r) {
        std::memcpy(c + r * x.c_stride, edge + r * kGemmPanel,
                    static_cast<size_t>(columns) * sizeof(float));
      }
    }
    FinishColumns(x.c, x.c_stride, rows, column, columns, epilogue);
  }
}

template <int kBits, bool kShifted>
void WidenPanel(const BlockwiseShape& s, const uint32_t* panel, float* to) {
  const int64_t code_words = s.block * kBits / 32 * kGemmPanel;
  for (int64_t b = 0; b < s.blocks(); ++b) {
    const auto* scales = reinterpret_cast<const float*>(panel);
    panel += kGemmPanel * (kShifted ? 2 : 1);
    const int64_t entries = std::min(s.block, s.k - b * s.block);
    for (int v0 = 0; v0 < kPanelVectors; v0 += kVectors) {
      V scale[kVectors], shift[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        scale[v] = hn::LoadU(kD, scales + (v0 + v) * kLanes);
        shift[v] = kShifted ? hn::LoadU(kD, scales + kGemmPanel + (v0 + v) * kLanes) : hn::Zero(kD);
      }
      ForEntries<kBits>(panel, s.block, v0, [&]<int kEntry>(int64_t k, const V* numbers) HWY_ATTR {
        if (k >= entries) return;
        CHAIRLIFT_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          const V value =
              kShifted ? hn::MulAdd(numbers[v], scale[v], shift[v]) : hn::Mul(numbers[v], scale[v]);
          hn::StoreU(value, kD, to + k * kGemmPanel + (v0 + v) * kLanes);
        }
      });
    }
    panel += code_words;
    to += entries * kGemmPanel;
  }
}

void WidenBlocks(const BlockwiseWeights& w, int64_t first, int64_t last, float* to) {
  const auto widen = w.shape.bits == 8 ? (w.shifted ? WidenPanel<8, true> : WidenPanel<8, false>)
                                       : (w.shifted ? WidenPanel<4, true> : WidenPanel<4, false>);
  for (int64_t panel = first; panel < last; ++panel, to += w.shape.k * kGemmPanel) {
    widen(w.shape, w.panel(panel), to);
  }
}

int64_t MostFewRows() { return 2 * kTileRows; }

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(MostFewRows);
HWY_EXPORT(MultiplyBlockwise);
HWY_EXPORT(WidenBlocks);

int64_t BlockwiseFewRows() { return HWY_DYNAMIC_DISPATCH(MostFewRows)(); }

void BlockwiseProduct(const BlockwiseWeights& weights, const BlockwiseOperands& operands,
                      int64_t rows, int64_t first, int64_t last, const GemmEpilogue& epilogue) {
  HWY_DYNAMIC_DISPATCH(MultiplyBlockwise)(weights, operands, rows, first, last, epilogue);
}

void WidenBlockwise(const BlockwiseWeights& weights, int64_t first, int64_t last, float* to) {
  HWY_DYNAMIC_DISPATCH(WidenBlocks)(weights, first, last, to);
}

}  // namespace chairlift
#endif  // HWY_ONCE
