#include "ops/linear/int8_finish.h"
#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/int8_finish_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "hwy/highway.h"
#include "ops/linear/activation-inl.h"
#include "ops/linear/int8_tiles.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr ActivationKind kAnyKind = static_cast<ActivationKind>(255);

template <ActivationKind kKind, bool kBias, bool kResidual, bool kSameRows>
void FinishInt8(const int32_t* HWY_RESTRICT sums, const Int8Finish& f, int64_t begin, int64_t end) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> d32;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto alpha = hn::Set(d, f.epilogue.activation.alpha);
  const auto beta = hn::Set(d, f.epilogue.activation.beta);
  const ActivationKind kind = kKind == kAnyKind ? f.epilogue.activation.kind : kKind;
  if (begin >= end) return;
  for (int64_t v = 0; v < kGemmPanel; v += lanes) {
    const auto correction = hn::LoadU(d32, f.corrections + v);
    const auto zero = f.zeros != nullptr ? hn::LoadU(d32, f.zeros + v) : hn::Zero(d32);
    const auto column_scale = hn::LoadU(d, f.scales + v);
    const auto bias = kBias ? hn::LoadU(d, f.epilogue.bias + v) : hn::Zero(d);
    auto shift = hn::Mul(correction, hn::Set(d32, f.row_zeros[begin]));
    auto scale = hn::Mul(hn::Set(d, f.row_scales[begin]), column_scale);
    for (int64_t r = begin; r < end; ++r) {
      if constexpr (!kSameRows) {
        shift = hn::Mul(correction, hn::Set(d32, f.row_zeros[r]));
        scale = hn::Mul(hn::Set(d, f.row_scales[r]), column_scale);
      }
      auto sum = hn::Sub(hn::LoadU(d32, sums + r * kGemmPanel + v), shift);
      if (f.zeros != nullptr) sum = hn::Sub(sum, hn::Mul(zero, hn::Set(d32, f.row_sums[r])));
      auto x = hn::Mul(hn::ConvertTo(d, sum), scale);
      if constexpr (kBias) x = hn::Add(x, bias);
      if constexpr (kResidual) {
        x = hn::Add(x, hn::LoadU(d, f.epilogue.residual + r * f.epilogue.residual_stride + v));
      }
      hn::StoreU(VectorActivate(d, kind, alpha, beta, x), d, f.c + r * f.c_stride + v);
    }
  }
}

template <ActivationKind kKind, bool kSameRows>
FinishInt8Rows Int8FinisherWith(const GemmEpilogue& epilogue) {
  if (epilogue.bias == nullptr) {
    return epilogue.residual == nullptr ? &FinishInt8<kKind, false, false, kSameRows>
                                        : &FinishInt8<kKind, false, true, kSameRows>;
  }
  return epilogue.residual == nullptr ? &FinishInt8<kKind, true, false, kSameRows>
                                      : &FinishInt8<kKind, true, true, kSameRows>;
}

template <ActivationKind kKind>
FinishInt8Rows Int8FinisherOfKind(const GemmEpilogue& epilogue, bool same_rows) {
  return same_rows ? Int8FinisherWith<kKind, true>(epilogue)
                   : Int8FinisherWith<kKind, false>(epilogue);
}

FinishInt8Rows Int8FinisherOf(const GemmEpilogue& epilogue, bool same_rows) {
  switch (epilogue.activation.kind) {
    case ActivationKind::kNone:
      return Int8FinisherOfKind<ActivationKind::kNone>(epilogue, same_rows);
    case ActivationKind::kGelu:
      return Int8FinisherOfKind<ActivationKind::kGelu>(epilogue, same_rows);
    default:
      return Int8FinisherOfKind<kAnyKind>(epilogue, same_rows);
  }
}

#if HWY_TARGET == HWY_SCALAR
constexpr int kPairRows = 1;
#else
using PairSums = hn::CappedTag<int32_t, kInt8TileColumns>;
using PairFactors = hn::Repartition<int16_t, PairSums>;
// Vectors of a tile that are computed together, and rows: as many as the registers hold.
constexpr int kPairLanes = static_cast<int>(hn::MaxLanes(PairSums()));
constexpr int kPairVectors = kPairLanes < kInt8TileColumns ? 2 : 1;
constexpr int kPairRows = HWY_TARGET <= HWY_AVX3 ? 8 : HWY_TARGET <= HWY_AVX2 ? 3 : 2;
#endif

template <int kRows>
HWY_NOINLINE void PairsTile(const uint8_t* a, int64_t steps, const int8_t* b, int32_t* sums) {
#if HWY_TARGET == HWY_SCALAR
  static_assert(kRows == 1);
  uint32_t row[kGemmPanel] = {};
  for (int64_t step = 0; step < steps; ++step, a += kInt8TileBytes) {
    for (int64_t half = 0; half < 2; ++half, b += kInt8TileBytes) {
      for (int64_t k = 0; k < kInt8TileDepth; ++k) {
        for (int64_t n = 0; n < kInt8TileColumns; ++n) {
          const int32_t product = a[k] * b[k / 4 * kInt8TileDepth + 4 * n + k % 4];
          row[half * kInt8TileColumns + n] += static_cast<uint32_t>(product);
        }
      }
    }
  }
  std::memcpy(sums, row, sizeof(row));
#else
  const PairSums d;
  const PairFactors d16;
  const hn::RebindToUnsigned<PairFactors> du16;
  for (int64_t half = 0; half < 2; ++half) {
    for (int64_t v0 = 0; v0 < kInt8TileColumns; v0 += kPairVectors * kPairLanes) {
      hn::Vec<PairSums> sum[kRows][kPairVectors];
      // For each pair of products, some instruction sets add one to each of two sums.
      hn::Vec<PairSums> odd[kRows][kPairVectors];
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kPairVectors; ++v) sum[r][v] = odd[r][v] = hn::Zero(d);
      }
      for (int64_t step = 0; step < steps; ++step) {
        const int8_t* weights = b + (2 * step + half) * kInt8TileBytes + 4 * v0;
        const uint8_t* rows = a + step * kInt8TileBytes;
        for (int64_t four = 0; four < kInt8TileDepth / 4; ++four) {
          // Bytes 0 and 2 of every four, and 1 and 3.
          hn::Vec<PairFactors> first[kPairVectors], second[kPairVectors];
          for (int v = 0; v < kPairVectors; ++v) {
            const auto both =
                hn::BitCast(d16, hn::LoadU(hn::Repartition<int8_t, PairSums>(),
                                           weights + four * kInt8TileDepth + 4 * v * kPairLanes));
            first[v] = hn::ShiftRight<8>(hn::ShiftLeft<8>(both));
            second[v] = hn::ShiftRight<8>(both);
          }
          for (int r = 0; r < kRows; ++r) {
            int32_t bytes;
            std::memcpy(&bytes, rows + r * kInt8TileDepth + 4 * four, sizeof(bytes));
            const auto both = hn::BitCast(du16, hn::Set(d, bytes));
            const auto even = hn::BitCast(d16, hn::And(both, hn::Set(du16, 0xff)));
            const auto high = hn::BitCast(d16, hn::ShiftRight<8>(both));
            for (int v = 0; v < kPairVectors; ++v) {
              sum[r][v] = hn::ReorderWidenMulAccumulate(d, even, first[v], sum[r][v], odd[r][v]);
              sum[r][v] = hn::ReorderWidenMulAccumulate(d, high, second[v], sum[r][v], odd[r][v]);
            }
          }
        }
      }
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kPairVectors; ++v) {
          hn::StoreU(hn::RearrangeToOddPlusEven(sum[r][v], odd[r][v]), d,
                     sums + r * kGemmPanel + half * kInt8TileColumns + v0 + v * kPairLanes);
        }
      }
    }
  }
#endif
}

using PairsFunction = void (*)(const uint8_t*, int64_t, const int8_t*, int32_t*);

// Indexed by rows − 1.
template <int... kRow>
constexpr std::array<PairsFunction, sizeof...(kRow)> PairsTiles(
    std::integer_sequence<int, kRow...>) {
  return {&PairsTile<kRow + 1>...};
}

void SumsInPairs(const uint8_t* a, int64_t steps, const int8_t* b, int64_t rows, int32_t* sums) {
  static constexpr auto kTiles = PairsTiles(std::make_integer_sequence<int, kPairRows>());
  for (int64_t r = 0; r < rows; r += kPairRows) {
    const int64_t here = std::min<int64_t>(kPairRows, rows - r);
    kTiles[static_cast<size_t>(here - 1)](a + r * kInt8TileDepth, steps, b, sums + r * kGemmPanel);
  }
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(Int8FinisherOf);
HWY_EXPORT(SumsInPairs);

FinishInt8Rows Int8Finisher(const GemmEpilogue& epilogue, bool same_rows) {
  return HWY_DYNAMIC_DISPATCH(Int8FinisherOf)(epilogue, same_rows);
}

void Int8SumsInPairs(const uint8_t* a, int64_t steps, const int8_t* b, int64_t rows,
                     int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(SumsInPairs)(a, steps, b, rows, sums);
}

}  // namespace chairlift
#endif  // HWY_ONCE
