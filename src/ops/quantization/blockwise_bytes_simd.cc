// Products of blockwise.h of rows rounded to 8 bits, by AVX-512 VNNI: each lane multiplies four
// bytes of a row by four of a column and adds the products up, exactly.
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

#define CHAIRLIFT_BYTES_TARGET "avx,avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"
// Of lambdas, which do not have what is pushed.
#define CHAIRLIFT_BYTES __attribute__((target(CHAIRLIFT_BYTES_TARGET), always_inline))

HWY_PUSH_ATTRIBUTES(CHAIRLIFT_BYTES_TARGET)
namespace chairlift {
namespace {

constexpr int kVectors = 2;  // of a panel
constexpr int kTileRows = 12;
constexpr int64_t kRowBlock = 10 * kTileRows;  // so many rows stay in the second-level cache

// Of the range of codes.
template <int kBits>
constexpr int32_t kHalf = 1 << (kBits - 1);

// Calls f with the constants 0 to N − 1, so that what they index stays in registers.
template <int N, typename F>
HWY_INLINE void ForEach(F f) {
  [&]<int... kAt>(std::integer_sequence<int, kAt...>) CHAIRLIFT_BYTES {
    (f(std::integral_constant<int, kAt>()), ...);
  }
  (std::make_integer_sequence<int, N>());
}

// Adds to each lane the products of its four bytes of `columns` with four bytes of a row. Written
// out, since g++ 12 copies the sums of its own intrinsic to and fro.
void AddProducts(__m512i& sum, __m512i columns, const int8_t* row) {
  using Four = const int8_t[4];
  asm("vpdpbusd %2%{1to16%}, %1, %0"
      : "+v"(sum)
      : "v"(columns), "m"(*reinterpret_cast<Four*>(row)));
}

// c [R, 32], rows c_stride apart, of one panel. Of a block, sums stay in registers; C, to which
// they are added, stays in the first-level cache.
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
    // Bytes of columns are taken as they count from 0, so that half of their range is too much.
    __m512i sum[R][kVectors];
    ForEach<R>([&](auto r) CHAIRLIFT_BYTES {
      sum[r][0] = sum[r][1] = _mm512_set1_epi32(a_sums[r * blocks + b]);
    });
    const uint32_t* const end = at + block * kBits / 32 * kGemmPanel;
    for (; at < end; at += kGemmPanel) {
      const __m512i words[kVectors] = {_mm512_loadu_si512(at), _mm512_loadu_si512(at + 16)};
      if constexpr (kBits == 4) {
        constexpr int kXorAnd = 0x28;  // (x ^ y) & z
        __m512i even[kVectors], odd[kVectors];
        ForEach<kVectors>([&](auto v) CHAIRLIFT_BYTES {
          const __m512i up = _mm512_srli_epi32(words[v], 4);
          even[v] = _mm512_ternarylogic_epi32(words[v], half, low_bits, kXorAnd);
          odd[v] = _mm512_ternarylogic_epi32(up, half, low_bits, kXorAnd);
        });
        ForEach<R>([&](auto r) CHAIRLIFT_BYTES {
          AddProducts(sum[r][0], even[0], a + r * a_stride);
          AddProducts(sum[r][1], even[1], a + r * a_stride);
        });
        ForEach<R>([&](auto r) CHAIRLIFT_BYTES {
          AddProducts(sum[r][0], odd[0], a + r * a_stride + 4);
          AddProducts(sum[r][1], odd[1], a + r * a_stride + 4);
        });
        a += 8;
      } else {
        const __m512i bytes[kVectors] = {_mm512_xor_si512(words[0], half),
                                         _mm512_xor_si512(words[1], half)};
        ForEach<R>([&](auto r) CHAIRLIFT_BYTES {
          AddProducts(sum[r][0], bytes[0], a + r * a_stride);
          AddProducts(sum[r][1], bytes[1], a + r * a_stride);
        });
        a += 4;
      }
    }
    ForEach<R>([&](auto r) CHAIRLIFT_BYTES {
      const __m512 a_scale = _mm512_set1_ps(a_scales[r * blocks + b]);
      ForEach<kVectors>([&](auto v) CHAIRLIFT_BYTES {
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

// The order in which Tile() reads the eight entries of a word of 4-bit codes.
void PutCodes(__m128i codes, bool in_words_of_eight, int8_t* to) {
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  if (in_words_of_eight) codes = _mm_shuffle_epi8(codes, order);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), codes);
}

// Entries i to i + 15 of `count`; 0 past them.
__m512 SixteenOf(const float* a, int64_t count, int64_t i) {
  const int64_t left = std::clamp<int64_t>(count - i, 0, 16);
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << left) - 1), a + i);
}

// `count` entries of a block of `block`; the rest are 0.
void RoundBlock(const float* a, int64_t count, int64_t block, int bits, int8_t* codes, float* scale,
                int32_t* sum) {
  // Of magnitudes, bits are in the order of numbers, and those of NaN are the largest.
  __m512i most = _mm512_setzero_si512();
  for (int64_t i = 0; i < count; i += 16) {
    const __m512i bits = _mm512_castps_si512(SixteenOf(a, count, i));
    most = _mm512_max_epu32(most, _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)));
  }
  alignas(64) uint32_t lanes[16];
  _mm512_store_si512(lanes, most);
  const uint32_t largest_bits = *std::max_element(lanes, lanes + 16);
  float largest;
  std::memcpy(&largest, &largest_bits, sizeof(largest));
  constexpr uint32_t kInfinity = 0x7f800000u;
  constexpr float kLeast = 127 * std::numeric_limits<float>::min();
  const bool finite = largest_bits < kInfinity;
  const __m512 factor = _mm512_set1_ps(finite && largest >= kLeast ? 127.0f / largest : 0.0f);
  *scale = finite ? largest / 127.0f : std::numeric_limits<float>::quiet_NaN();
  __m512i sums = _mm512_setzero_si512();
  for (int64_t i = 0; i < block; i += 16) {
    const __m512 x = finite ? SixteenOf(a, count, i) : _mm512_setzero_ps();
    const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(x, factor));
    sums = _mm512_add_epi32(sums, rounded);
    PutCodes(_mm512_cvtsepi32_epi8(rounded), bits == 4, codes + i);
  }
  _mm512_store_si512(lanes, sums);
  const auto all = static_cast<int32_t>(std::accumulate(lanes, lanes + 16, 0u));
  *sum = -all * (bits == 4 ? kHalf<4> : kHalf<8>);
}

using TileFunction = void (*)(const int8_t*, int64_t, const float*, const int32_t*, int64_t,
                              int64_t, const uint32_t*, float*, int64_t);
template <int kBits, bool kShifted, int... kRow>
constexpr std::array<TileFunction, sizeof...(kRow)> Tiles(std::integer_sequence<int, kRow...>) {
  return {Tile<kRow + 1, kBits, kShifted>...};
}
// By rows − 1.
template <int kBits, bool kShifted>
constexpr auto kTiles = Tiles<kBits, kShifted>(std::make_integer_sequence<int, kTileRows>());

}  // namespace
}  // namespace chairlift
HWY_POP_ATTRIBUTES

namespace chairlift {

bool CanMultiplyBytes() {
  return ActiveCpuIsa() == CpuIsa::kAvx512 && __builtin_cpu_supports("avx512vnni") != 0;
}

void RoundRows(const float* a, int64_t a_stride, int64_t rows, const BlockwiseShape& shape,
               const ByteRows& to) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t b = 0; b < shape.blocks(); ++b) {
      const int64_t k = b * shape.block, at = r * shape.blocks() + b;
      RoundBlock(a + r * a_stride + k, std::min(shape.block, shape.k - k), shape.block, shape.bits,
                 to.codes + r * shape.filled_k() + k, to.scales + at, to.sums + at);
    }
  }
}

void ByteProduct(const BlockwiseWeights& weights, const ByteRows& a, int64_t rows, float* c,
                 int64_t c_stride, int64_t first, int64_t last, const GemmEpilogue& epilogue) {
  const BlockwiseShape& s = weights.shape;
  const auto& tiles = s.bits == 8 ? (weights.shifted ? kTiles<8, true> : kTiles<8, false>)
                                  : (weights.shifted ? kTiles<4, true> : kTiles<4, false>);
  for (int64_t from = 0; from < rows; from += kRowBlock) {
    const int64_t height = std::min(kRowBlock, rows - from);
    const int64_t parts = (height + kTileRows - 1) / kTileRows;
    for (int64_t panel = first; panel < last; ++panel) {
      const int64_t column = panel * kGemmPanel;
      const int64_t columns = std::min(kGemmPanel, s.n - column);
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t row = from + height * part / parts;
        const int64_t count = from + height * (part + 1) / parts - row;
        float* to = c + row * c_stride + column;
        float edge[kTileRows * kGemmPanel];
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
