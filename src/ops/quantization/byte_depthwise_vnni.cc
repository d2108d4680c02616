// Depthwise sums with AVX-512 VNNI: the bytes of four taps are interleaved, and one instruction
// adds their four products to a sum. Vectors of 32 bytes, because two units shuffle these.
#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "device/cpu/isa.h"
#include "ops/quantization/byte_conv.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace chairlift {
namespace {

constexpr int64_t kVnniChannels = 32;  // of a vector
constexpr int64_t kVnniTaps = 4;       // of an instruction

int64_t VnniGroups(const DepthwiseTaps& taps) {
  return (taps.rows * taps.columns + kVnniTaps - 1) / kVnniTaps;
}
int64_t VnniChunks(int64_t channels) { return (channels + kVnniChannels - 1) / kVnniChannels; }
// The first channel of a chunk: the last one may repeat some of the one before.
int64_t VnniChannel(int64_t chunk, int64_t channels) {
  return std::min(chunk * kVnniChannels, channels - kVnniChannels);
}

}  // namespace

bool HasDepthwiseVnni(int64_t channels) {
#if defined(__x86_64__)
  static const bool kHas = ActiveCpuIsa() >= CpuIsa::kAvx512 &&
                           __builtin_cpu_supports("avx512vnni") != 0 &&
                           __builtin_cpu_supports("avx512vl") != 0;
  return kHas && channels >= kVnniChannels;
#else
  (void)channels;
  return false;
#endif
}

int64_t DepthwiseVnniBytes(const DepthwiseTaps& taps) {
  return VnniChunks(taps.channels) * VnniGroups(taps) * kVnniChannels * kVnniTaps;
}

void PackDepthwiseVnni(const DepthwiseTaps& taps, const int8_t* w, int8_t* to) {
  const int64_t count = taps.rows * taps.columns;
  for (int64_t chunk = 0; chunk < VnniChunks(taps.channels); ++chunk) {
    const int64_t first = VnniChannel(chunk, taps.channels);
    for (int64_t group = 0; group < VnniGroups(taps); ++group) {
      // Interleaving leaves channels 4·i to 4·i + 3 of each half of a vector in the i-th result.
      for (int64_t i = 0; i < kVnniChannels; ++i) {
        const int64_t channel = first + i % 8 / 4 * 16 + i / 8 * 4 + i % 4;
        for (int64_t t = group * kVnniTaps; t < (group + 1) * kVnniTaps; ++t) {
          *to++ = t < count ? w[channel * count + t] : int8_t{0};
        }
      }
    }
  }
}

#if defined(__x86_64__)
namespace {

// Sums one chunk of channels of `count` outputs. `offsets` has one entry per tap, four per group.
// If kGroups is 0, the number of groups is `groups`.
template <int kGroups>
__attribute__((target("avx2,avx512f,avx512bw,avx512vl,avx512vnni"))) void VnniChunk(
    const int64_t* offsets, int64_t groups, const uint8_t* x, int64_t step, const __m256i* weights,
    int64_t count, int64_t channels, int32_t* sums) {
  if constexpr (kGroups > 0) groups = kGroups;
  for (int64_t o = 0; o < count; ++o, x += step, sums += channels) {
    __m256i sum[4] = {};
#pragma GCC unroll 4
    for (int64_t g = 0; g < groups; ++g) {
      const auto tap = [&](int64_t t)
          __attribute__((always_inline, target("avx2,avx512f,avx512bw,avx512vl,avx512vnni"))) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + offsets[g * 4 + t]));
      };
      const __m256i t0 = tap(0), t1 = tap(1), t2 = tap(2), t3 = tap(3);
      const __m256i low01 = _mm256_unpacklo_epi8(t0, t1), high01 = _mm256_unpackhi_epi8(t0, t1);
      const __m256i low23 = _mm256_unpacklo_epi8(t2, t3), high23 = _mm256_unpackhi_epi8(t2, t3);
      const __m256i* w = weights + g * 4;
      sum[0] = _mm256_dpbusd_epi32(sum[0], _mm256_unpacklo_epi16(low01, low23),
                                   _mm256_loadu_si256(w + 0));
      sum[1] = _mm256_dpbusd_epi32(sum[1], _mm256_unpackhi_epi16(low01, low23),
                                   _mm256_loadu_si256(w + 1));
      sum[2] = _mm256_dpbusd_epi32(sum[2], _mm256_unpacklo_epi16(high01, high23),
                                   _mm256_loadu_si256(w + 2));
      sum[3] = _mm256_dpbusd_epi32(sum[3], _mm256_unpackhi_epi16(high01, high23),
                                   _mm256_loadu_si256(w + 3));
    }
    for (int i = 0; i < 4; ++i) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(sums + 4 * i), _mm256_castsi256_si128(sum[i]));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(sums + 16 + 4 * i),
                       _mm256_extracti128_si256(sum[i], 1));
    }
  }
}

}  // namespace

void DepthwiseSumsVnni(const DepthwiseTaps& taps, const uint8_t* x, const int8_t* w, int64_t count,
                       int32_t* sums) {
  const int64_t groups = VnniGroups(taps);
  // Weights of taps after the last one are zero: any bytes will do.
  absl::InlinedVector<int64_t, 28> offsets(static_cast<size_t>(groups * kVnniTaps), 0);
  for (int64_t t = 0; t < taps.rows * taps.columns; ++t) {
    offsets[static_cast<size_t>(t)] =
        t / taps.columns * taps.row_bytes + t % taps.columns * taps.column_bytes;
  }
  const auto run = groups == 3 ? VnniChunk<3> : groups == 7 ? VnniChunk<7> : VnniChunk<0>;
  for (int64_t chunk = 0; chunk < VnniChunks(taps.channels); ++chunk) {
    const int64_t channel = VnniChannel(chunk, taps.channels);
    run(offsets.data(), groups, x + channel, taps.step_bytes,
        reinterpret_cast<const __m256i*>(w) + chunk * groups * 4, count, taps.channels,
        sums + channel);
  }
}
#else
void DepthwiseSumsVnni(const DepthwiseTaps&, const uint8_t*, const int8_t*, int64_t, int32_t*) {}
#endif

}  // namespace chairlift
