// Products of blockwise.h for rows rounded to 8 bits. Each lane multiplies four bytes of a row by
// four of a column, and adds the products exactly. AVX-512 VNNI does this in one instruction. AVX2
// adds 16-bit pairs first.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "device/cpu/isa.h"
#include "ops/linear/packed_gemm.h"
#include "ops/quantization/blockwise.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "hwy/base.h"

namespace chairlift {
namespace {

// Half of the range of codes.
template <int kBits>
constexpr int32_t kHalf = 1 << (kBits - 1);
constexpr int64_t kRowBlock = 120;  // this many rows stay in the second-level cache

// c [rows, 32], rows c_stride apart, for one panel.
using TileFunction = void (*)(const int8_t* a, int64_t a_stride, const float* a_scales,
                              const int32_t* a_sums, int64_t blocks, int64_t block,
                              const uint32_t* panel, float* c, int64_t c_stride);
constexpr int kMostRows = 12;
struct ByteTiles {
  int most_rows = 0;
  // Indexed by bits (4, 8), by whether weights are shifted, and by rows − 1.
  std::array<std::array<std::array<TileFunction, kMostRows>, 2>, 2> tiles = {};
};

}  // namespace
}  // namespace chairlift

// --- AVX2 ----------------------------------------------------------------------------------------

#define CHAIRLIFT_AVX2_TARGET "avx,avx2,fma"
// For lambdas, to which the pushed target does not apply.
#define CHAIRLIFT_AVX2 __attribute__((target(CHAIRLIFT_AVX2_TARGET), always_inline))

HWY_PUSH_ATTRIBUTES(CHAIRLIFT_AVX2_TARGET)
namespace chairlift {
namespace {
namespace avx2 {

constexpr int kVectors = 2;  // side by side, of the four of a panel
constexpr int kTileRows = 4;

// Calls f with the constants 0 to N − 1, so that what they index stays in registers.
template <int N, typename F>
HWY_INLINE void ForEach(F f) {
  [&]<int... kAt>(std::integer_sequence<int, kAt...>) CHAIRLIFT_AVX2 {
    (f(std::integral_constant<int, kAt>()), ...);
  }
  (std::make_integer_sequence<int, N>());
}

__m256i Four(const int8_t* codes) {
  int32_t four;
  std::memcpy(&four, codes, sizeof(four));
  return _mm256_set1_epi32(four);
}

template <int R, int kBits, bool kShifted>
HWY_NOINLINE void Tile(const int8_t* rows, int64_t a_stride, const float* a_scales,
                       const int32_t* a_sums, int64_t blocks, int64_t block, const uint32_t* panel,
                       float* c, int64_t c_stride) {
  const __m256i half = _mm256_set1_epi8(static_cast<char>(0x88));
  const __m256i low_bits = _mm256_set1_epi8(0x0F);
  const __m256i ones = _mm256_set1_epi16(1);
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < 4; ++v) _mm256_storeu_ps(c + r * c_stride + 8 * v, _mm256_setzero_ps());
  }
  const int64_t code_rows = block * kBits / 32;
  for (int64_t b = 0; b < blocks; ++b) {
    const auto* all_scales = reinterpret_cast<const float*>(panel);
    panel += kGemmPanel * (kShifted ? 2 : 1);
    for (int v0 = 0; v0 < 4; v0 += kVectors) {
      const float* scales = all_scales + 8 * v0;
      const uint32_t* at = panel;
      const int8_t* a = rows + b * block;
      // 4-bit codes are unsigned here, so half of their range is subtracted later. For 8 bits, the
      // signs are moved to the row.
      __m256i sum[R][kVectors];
      ForEach<R>([&](auto r) CHAIRLIFT_AVX2 {
        sum[r][0] = sum[r][1] = _mm256_set1_epi32(kBits == 4 ? a_sums[r * blocks + b] : 0);
      });
      for (int64_t row = 0; row < code_rows;) {
        if constexpr (kBits == 4) {
          // 16 bits hold the sum of this many words: 4 · 4 · 15 · 127.
          const int64_t end = std::min<int64_t>(code_rows, row + 4);
          __m256i pairs[R][kVectors];
          ForEach<R>([&](auto r)
                         CHAIRLIFT_AVX2 { pairs[r][0] = pairs[r][1] = _mm256_setzero_si256(); });
          for (; row < end; ++row, at += kGemmPanel, a += 8) {
            __m256i even[kVectors], odd[kVectors];
            ForEach<kVectors>([&](auto v) CHAIRLIFT_AVX2 {
              const __m256i words = _mm256_xor_si256(
                  half, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 8 * (v0 + v))));
              even[v] = _mm256_and_si256(words, low_bits);
              odd[v] = _mm256_and_si256(_mm256_srli_epi32(words, 4), low_bits);
            });
            ForEach<R>([&](auto r) CHAIRLIFT_AVX2 {
              const __m256i first = Four(a + r * a_stride), second = Four(a + r * a_stride + 4);
              ForEach<kVectors>([&](auto v) CHAIRLIFT_AVX2 {
                const __m256i both = _mm256_add_epi16(_mm256_maddubs_epi16(even[v], first),
                                                      _mm256_maddubs_epi16(odd[v], second));
                pairs[r][v] = _mm256_add_epi16(pairs[r][v], both);
              });
            });
          }
          ForEach<R>([&](auto r) CHAIRLIFT_AVX2 {
            ForEach<kVectors>([&](auto v) CHAIRLIFT_AVX2 {
              sum[r][v] = _mm256_add_epi32(sum[r][v], _mm256_madd_epi16(pairs[r][v], ones));
            });
          });
        } else {
          __m256i words[kVectors], sizes[kVectors];
          ForEach<kVectors>([&](auto v) CHAIRLIFT_AVX2 {
            words[v] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 8 * (v0 + v)));
            sizes[v] = _mm256_abs_epi8(words[v]);
          });
          ForEach<R>([&](auto r) CHAIRLIFT_AVX2 {
            const __m256i four = Four(a + r * a_stride);
            ForEach<kVectors>([&](auto v) CHAIRLIFT_AVX2 {
              // At most 2 · 128 · 127, which fits in 16 bits.
              const __m256i pairs =
                  _mm256_maddubs_epi16(sizes[v], _mm256_sign_epi8(four, words[v]));
              sum[r][v] = _mm256_add_epi32(sum[r][v], _mm256_madd_epi16(pairs, ones));
            });
          });
          ++row;
          at += kGemmPanel;
          a += 4;
        }
      }
      ForEach<R>([&](auto r) CHAIRLIFT_AVX2 {
        const __m256 a_scale = _mm256_set1_ps(a_scales[r * blocks + b]);
        ForEach<kVectors>([&](auto v) CHAIRLIFT_AVX2 {
          const __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(scales + 8 * v), a_scale);
          float* const to = c + r * c_stride + 8 * (v0 + v);
          __m256 total = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r][v]), scale, _mm256_loadu_ps(to));
          if constexpr (kShifted) {
            const float codes = static_cast<float>(a_sums[r * blocks + b]) / -kHalf<kBits>;
            const __m256 shift = _mm256_loadu_ps(scales + kGemmPanel + 8 * v);
            total = _mm256_fmadd_ps(_mm256_mul_ps(a_scale, _mm256_set1_ps(codes)), shift, total);
          }
          _mm256_storeu_ps(to, total);
        });
      });
    }
    panel += code_rows * kGemmPanel;
  }
}

// The order in which tiles read the eight entries of a word of 4-bit codes.
void PutCodes(__m128i codes, bool in_words_of_eight, int8_t* to) {
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  if (in_words_of_eight) codes = _mm_shuffle_epi8(codes, order);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), codes);
}

// Sixteen floats from `i` on, of `count`; 0 past the end.
struct Sixteen {
  __m256 low, high;
};
Sixteen Load(const float* a, int64_t count, int64_t i) {
  if (i + 16 <= count) return {_mm256_loadu_ps(a + i), _mm256_loadu_ps(a + i + 8)};
  alignas(32) float some[16] = {};
  if (i < count) std::memcpy(some, a + i, static_cast<size_t>(count - i) * sizeof(float));
  return {_mm256_load_ps(some), _mm256_load_ps(some + 8)};
}

// `count` entries of a block of `block`; the rest are 0.
void RoundBlock(const float* a, int64_t count, int64_t block, int bits, int8_t* codes, float* scale,
                int32_t* sum) {
  // The bit patterns of magnitudes are ordered like the numbers, and those of NaN are the largest.
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i most = _mm256_setzero_si256();
  for (int64_t i = 0; i < count; i += 16) {
    const Sixteen x = Load(a, count, i);
    for (const __m256 half : {x.low, x.high}) {
      most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(half), magnitude));
    }
  }
  alignas(32) uint32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), most);
  const uint32_t largest_bits = *std::max_element(lanes, lanes + 8);
  float largest;
  std::memcpy(&largest, &largest_bits, sizeof(largest));
  constexpr uint32_t kInfinity = 0x7f800000u;
  constexpr float kLeast = 127 * std::numeric_limits<float>::min();
  const bool finite = largest_bits < kInfinity;
  // Nothing is read from a block that is not finite: it has no codes.
  const int64_t read = finite ? count : 0;
  const __m256 factor = _mm256_set1_ps(finite && largest >= kLeast ? 127.0f / largest : 0.0f);
  *scale = finite ? largest / 127.0f : std::numeric_limits<float>::quiet_NaN();
  __m256i sums = _mm256_setzero_si256();
  for (int64_t i = 0; i < block; i += 16) {
    const Sixteen x = Load(a, read, i);
    const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(x.low, factor));
    const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(x.high, factor));
    sums = _mm256_add_epi32(sums, _mm256_add_epi32(low, high));
    // Packing works on 128-bit halves.
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
    PutCodes(_mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)),
             bits == 4, codes + i);
  }
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sums);
  const auto all = static_cast<int32_t>(std::accumulate(lanes, lanes + 8, 0u));
  *sum = -all * (bits == 4 ? kHalf<4> : kHalf<8>);
}

template <int kBits, bool kShifted, int... kRow>
constexpr std::array<TileFunction, kMostRows> TilesOf(std::integer_sequence<int, kRow...>) {
  return {Tile<kRow + 1, kBits, kShifted>...};
}
constexpr std::make_integer_sequence<int, kTileRows> kRows;
constexpr ByteTiles kTiles{kTileRows,
                           {{{TilesOf<4, false>(kRows), TilesOf<4, true>(kRows)},
                             {TilesOf<8, false>(kRows), TilesOf<8, true>(kRows)}}}};

}  // namespace avx2
}  // namespace
}  // namespace chairlift
HWY_POP_ATTRIBUTES

// --- AVX-512 VNNI --------------------------------------------------------------------------------

#define CHAIRLIFT_VNNI_TARGET CHAIRLIFT_AVX2_TARGET ",avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"
#define CHAIRLIFT_VNNI __attribute__((target(CHAIRLIFT_VNNI_TARGET), always_inline))

HWY_PUSH_ATTRIBUTES(CHAIRLIFT_VNNI_TARGET)
namespace chairlift {
namespace {
namespace vnni {

constexpr int kVectors = 2;  // of a panel

template <int N, typename F>
HWY_INLINE void ForEach(F f) {
  [&]<int... kAt>(std::integer_sequence<int, kAt...>) CHAIRLIFT_VNNI {
    (f(std::integral_constant<int, kAt>()), ...);
  }
  (std::make_integer_sequence<int, N>());
}

// Adds to each lane the products of its four bytes of `columns` with four bytes of a row. Written
// in assembly, because g++ 12 moves the sums of its own intrinsic between registers.
void AddProducts(__m512i& sum, __m512i columns, const int8_t* row) {
  using Four = const int8_t[4];
  asm("vpdpbusd %2%{1to16%}, %1, %0"
      : "+v"(sum)
      : "v"(columns), "m"(*reinterpret_cast<Four*>(row)));
}

// The sums of a block stay in registers. C, to which they are added, stays in the first-level
// cache.
template <int R, int kBits, bool kShifted>
HWY_NOINLINE void Tile(const int8_t* a, int64_t a_stride, const float* a_scales,
                       const int32_t* a_sums, int64_t blocks, int64_t block, const uint32_t* at,
                       float* c, int64_t c_stride) {
  const __m512i half = _mm512_set1_epi8(static_cast<char>(kBits == 4 ? 0x88 : 0x80));
  const __m512i low_bits = _mm512_set1_epi8(0x0F);
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      _mm512_storeu_ps(c + r * c_stride + 16 * v, _mm512_setzero_ps());
    }
  }
  for (int64_t b = 0; b < blocks; ++b) {
    const auto* scales = reinterpret_cast<const float*>(at);
    at += kGemmPanel * (kShifted ? 2 : 1);
    // Bytes of columns are unsigned here, so half of their range is subtracted later.
    __m512i sum[R][kVectors];
    ForEach<R>([&](auto r) CHAIRLIFT_VNNI {
      sum[r][0] = sum[r][1] = _mm512_set1_epi32(a_sums[r * blocks + b]);
    });
    const uint32_t* const end = at + block * kBits / 32 * kGemmPanel;
    for (; at < end; at += kGemmPanel) {
      const __m512i words[kVectors] = {_mm512_loadu_si512(at), _mm512_loadu_si512(at + 16)};
      if constexpr (kBits == 4) {
        constexpr int kXorAnd = 0x28;  // (x ^ y) & z
        __m512i even[kVectors], odd[kVectors];
        ForEach<kVectors>([&](auto v) CHAIRLIFT_VNNI {
          const __m512i up = _mm512_srli_epi32(words[v], 4);
          even[v] = _mm512_ternarylogic_epi32(words[v], half, low_bits, kXorAnd);
          odd[v] = _mm512_ternarylogic_epi32(up, half, low_bits, kXorAnd);
        });
        ForEach<R>([&](auto r) CHAIRLIFT_VNNI {
          AddProducts(sum[r][0], even[0], a + r * a_stride);
          AddProducts(sum[r][1], even[1], a + r * a_stride);
        });
        ForEach<R>([&](auto r) CHAIRLIFT_VNNI {
          AddProducts(sum[r][0], odd[0], a + r * a_stride + 4);
          AddProducts(sum[r][1], odd[1], a + r * a_stride + 4);
        });
        a += 8;
      } else {
        const __m512i bytes[kVectors] = {_mm512_xor_si512(words[0], half),
                                         _mm512_xor_si512(words[1], half)};
        ForEach<R>([&](auto r) CHAIRLIFT_VNNI {
          AddProducts(sum[r][0], bytes[0], a + r * a_stride);
          AddProducts(sum[r][1], bytes[1], a + r * a_stride);
        });
        a += 4;
      }
    }
    ForEach<R>([&](auto r) CHAIRLIFT_VNNI {
      const __m512 a_scale = _mm512_set1_ps(a_scales[r * blocks + b]);
      ForEach<kVectors>([&](auto v) CHAIRLIFT_VNNI {
        const __m512 scale = _mm512_mul_ps(_mm512_loadu_ps(scales + 16 * v), a_scale);
        float* const to = c + r * c_stride + 16 * v;
        __m512 total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][v]), scale, _mm512_loadu_ps(to));
        if constexpr (kShifted) {
          const __m512 a_sum = _mm512_mul_ps(
              a_scale, _mm512_set1_ps(static_cast<float>(a_sums[r * blocks + b]) / -kHalf<kBits>));
          const __m512 shift = _mm512_loadu_ps(scales + kGemmPanel + 16 * v);
          total = _mm512_fmadd_ps(a_sum, shift, total);
        }
        _mm512_storeu_ps(to, total);
      });
    });
  }
}

template <int kBits, bool kShifted, int... kRow>
constexpr std::array<TileFunction, kMostRows> TilesOf(std::integer_sequence<int, kRow...>) {
  return {Tile<kRow + 1, kBits, kShifted>...};
}
constexpr std::make_integer_sequence<int, kMostRows> kRows;
constexpr ByteTiles kTiles{kMostRows,
                           {{{TilesOf<4, false>(kRows), TilesOf<4, true>(kRows)},
                             {TilesOf<8, false>(kRows), TilesOf<8, true>(kRows)}}}};

}  // namespace vnni
}  // namespace
}  // namespace chairlift
HWY_POP_ATTRIBUTES

namespace chairlift {

bool CanMultiplyBytes() { return ActiveCpuIsa() >= CpuIsa::kAvx2; }

void RoundRows(const float* a, int64_t a_stride, int64_t rows, const BlockwiseShape& shape,
               const ByteRows& to) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t b = 0; b < shape.blocks(); ++b) {
      const int64_t k = b * shape.block, at = r * shape.blocks() + b;
      avx2::RoundBlock(a + r * a_stride + k, std::min(shape.block, shape.k - k), shape.block,
                       shape.bits, to.codes + r * shape.filled_k() + k, to.scales + at,
                       to.sums + at);
    }
  }
}

void ByteProduct(const BlockwiseWeights& weights, const ByteRows& a, int64_t rows, float* c,
                 int64_t c_stride, int64_t first, int64_t last, const GemmEpilogue& epilogue) {
  static const bool kHasVnni =
      ActiveCpuIsa() >= CpuIsa::kAvx512 && __builtin_cpu_supports("avx512vnni") != 0;
  const ByteTiles& all = kHasVnni ? vnni::kTiles : avx2::kTiles;
  const BlockwiseShape& s = weights.shape;
  const auto& tiles = all.tiles[s.bits == 8 ? 1 : 0][weights.shifted ? 1 : 0];
  for (int64_t from = 0; from < rows; from += kRowBlock) {
    const int64_t height = std::min(kRowBlock, rows - from);
    const int64_t parts = (height + all.most_rows - 1) / all.most_rows;
    for (int64_t panel = first; panel < last; ++panel) {
      const int64_t column = panel * kGemmPanel;
      const int64_t columns = std::min(kGemmPanel, s.n - column);
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t row = from + height * part / parts;
        const int64_t count = from + height * (part + 1) / parts - row;
        float* to = c + row * c_stride + column;
        float edge[kMostRows * kGemmPanel];
        const bool whole = columns == kGemmPanel;
        tiles[static_cast<size_t>(count - 1)](
            a.codes + row * s.filled_k(), s.filled_k(), a.scales + row * s.blocks(),
            a.sums + row * s.blocks(), s.blocks(), s.block, weights.panel(panel), whole ? to : edge,
            whole ? c_stride : kGemmPanel);
        for (int64_t r = 0; !whole && r < count; ++r) {
          std::memcpy(to + r * c_stride, edge + r * kGemmPanel,
                      static_cast<size_t>(columns) * sizeof(float));
        }
      }
    }
  }
  FinishGemm(c, c_stride, rows, first * kGemmPanel,
             std::min(s.n, last * kGemmPanel) - first * kGemmPanel, epilogue);
}

}  // namespace chairlift

#else  // no such processor

namespace chairlift {

bool CanMultiplyBytes() { return false; }
void RoundRows(const float*, int64_t, int64_t, const BlockwiseShape&, const ByteRows&) {}
void ByteProduct(const BlockwiseWeights&, const ByteRows&, int64_t, float*, int64_t, int64_t,
                 int64_t, const GemmEpilogue&) {}

}  // namespace chairlift

#endif
