// The vector loops of byte_conv.h, one build per instruction set.
#include <algorithm>
#include <cstring>

#include "ops/quantization/byte_conv.h"
#include "ops/quantization/rounding.h"
#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/quantization/byte_conv_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Sum = hn::CappedTag<int32_t, 16>;
using Real = hn::Rebind<float, Sum>;
using Unsigned = hn::Rebind<uint8_t, Sum>;

// One result of channel c.
inline uint8_t OneByte(const ByteRange& range, int32_t sum, int32_t start, float scale) {
  sum = static_cast<int32_t>(static_cast<uint32_t>(sum) + static_cast<uint32_t>(start));
  const float low = static_cast<float>(range.low - range.zero);
  const float high = static_cast<float>(range.high - range.zero);
  float x = static_cast<float>(sum) * scale;
  x = x > low ? x : low;
  x = x < high ? x : high;
  return static_cast<uint8_t>(Quantize<int16_t>(x, range.zero));
}

void ToBytesRows(const ByteRange& range, const int32_t* sums, int64_t rows, int64_t channels,
                 int64_t sums_stride, const int32_t* start, const float* scale, uint8_t* y,
                 int64_t y_stride) {
  const Sum d;
  const Real df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto low = hn::Set(df, static_cast<float>(range.low - range.zero));
  const auto high = hn::Set(df, static_cast<float>(range.high - range.zero));
  const auto zero = hn::Set(d, range.zero);
  const auto round = hn::Set(df, 12582912.0f);
  const hn::RebindToUnsigned<Sum> wide;
  const Unsigned bytes;
  for (int64_t r = 0; r < rows; ++r, sums += sums_stride, y += y_stride) {
    // The last vector may repeat some channels of the one before.
    for (int64_t next = 0; channels >= lanes && next < channels; next += lanes) {
      const int64_t c = std::min(next, channels - lanes);
      const auto sum = hn::Add(hn::LoadU(d, sums + c), hn::LoadU(d, start + c));
      auto x = hn::Mul(hn::ConvertTo(df, sum), hn::LoadU(df, scale + c));
      // A product that is not a number gives the lowest result. On x86 Max() does that.
#if HWY_ARCH_X86
      x = hn::Max(x, low);
#else
      x = hn::IfThenElse(hn::Gt(x, low), x, low);
#endif
      x = hn::Min(x, high);
      // Adding 1.5 · 2²³ rounds as in Quantize(), and leaves the integer in the low bits.
      const auto bits = hn::Add(hn::BitCast(d, hn::Add(x, round)), zero);
      hn::StoreU(hn::TruncateTo(bytes, hn::BitCast(wide, bits)), bytes, y + c);
    }
    for (int64_t c = 0; channels < lanes && c < channels; ++c) {
      y[c] = OneByte(range, sums[c], start[c], scale[c]);
    }
  }
}

// kCount adjacent outputs at `sums`, for all channels.
template <int kCount>
void Outputs(const DepthwiseTaps& s, const uint8_t* x, const int32_t* w, int32_t* sums) {
  const int64_t channels = s.channels;
  int64_t first = 0;
#if HWY_TARGET != HWY_SCALAR
  const Sum d;
  const hn::Repartition<int16_t, Sum> d16;
  const Unsigned bytes;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  // The last vector may repeat some channels of the one before.
  for (int64_t c = 0; channels >= lanes && c < channels; c += lanes) {
    const int64_t at = std::min(c, channels - lanes);
    // Some instruction sets add the products of a pair to two sums.
    hn::Vec<Sum> even[kCount];
    hn::Vec<Sum> odd[kCount];
    for (int i = 0; i < kCount; ++i) even[i] = odd[i] = hn::Zero(d);
    const int32_t* weights = w + at;
    for (int64_t ty = 0; ty < s.rows; ++ty) {
      const uint8_t* from = x + ty * s.row_bytes + at;
      for (int64_t tx = 0; tx < s.columns; ++tx, from += s.column_bytes, weights += channels) {
        const auto weight = hn::BitCast(d16, hn::LoadU(d, weights));
        for (int i = 0; i < kCount; ++i) {
          const auto value = hn::PromoteTo(d, hn::LoadU(bytes, from + i * s.step_bytes));
          even[i] =
              hn::ReorderWidenMulAccumulate(d, hn::BitCast(d16, value), weight, even[i], odd[i]);
        }
      }
    }
    for (int i = 0; i < kCount; ++i) {
      hn::StoreU(hn::RearrangeToOddPlusEven(even[i], odd[i]), d, sums + i * channels + at);
    }
  }
  if (channels >= lanes) first = channels;
#endif
  for (int i = 0; i < kCount; ++i) {
    for (int64_t c = first; c < channels; ++c) {
      uint32_t sum = 0;
      for (int64_t t = 0; t < s.rows * s.columns; ++t) {
        const int32_t value =
            x[t / s.columns * s.row_bytes + t % s.columns * s.column_bytes + i * s.step_bytes + c];
        sum += static_cast<uint32_t>(value * static_cast<int16_t>(w[t * channels + c]));
      }
      sums[i * channels + c] = static_cast<int32_t>(sum);
    }
  }
}

void Depthwise(const DepthwiseTaps& s, const uint8_t* x, const int32_t* w, int64_t count,
               int32_t* sums) {
  constexpr int kTogether = 4;
  int64_t i = 0;
  for (; i + kTogether <= count; i += kTogether) {
    Outputs<kTogether>(s, x + i * s.step_bytes, w, sums + i * s.channels);
  }
  for (; i < count; ++i) Outputs<1>(s, x + i * s.step_bytes, w, sums + i * s.channels);
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(ToBytesRows);
HWY_EXPORT(Depthwise);

void SumsToBytes(const ByteRange& range, const int32_t* sums, int64_t rows, int64_t channels,
                 int64_t sums_stride, const int32_t* start, const float* scale, uint8_t* y,
                 int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(ToBytesRows)
  (range, sums, rows, channels, sums_stride, start, scale, y, y_stride);
}

void DepthwiseSums(const DepthwiseTaps& taps, const uint8_t* x, const int32_t* w, int64_t count,
                   int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(Depthwise)(taps, x, w, count, sums);
}

}  // namespace chairlift
#endif  // HWY_ONCE
