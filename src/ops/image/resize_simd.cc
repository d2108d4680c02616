// Loops of Resize on float32, one build per instruction set.
#include "ops/image/resize_simd.h"

#include <algorithm>

#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/image/resize_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::ScalableTag<float>;

HWY_INLINE void BlendTail(const float* const* rows, const float* weight, int taps, int64_t i,
                          int64_t n, float* out) {
  for (; i < n; ++i) {
    float sum = 0;
    for (int k = 0; k < taps; ++k) sum += weight[k] * rows[k][i];
    out[i] = sum;
  }
}

void BlendRows(const float* const* rows, const float* weight, int taps, int64_t n, float* out) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  if (taps == 2) {
    const auto w0 = hn::Set(d, weight[0]);
    const auto w1 = hn::Set(d, weight[1]);
    for (; i + lanes <= n; i += lanes) {
      const auto low = hn::Mul(w0, hn::LoadU(d, rows[0] + i));
      hn::StoreU(hn::MulAdd(w1, hn::LoadU(d, rows[1] + i), low), d, out + i);
    }
  } else {
    for (; i + lanes <= n; i += lanes) {
      auto sum = hn::Zero(d);
      for (int k = 0; k < taps; ++k) {
        sum = hn::MulAdd(hn::Set(d, weight[k]), hn::LoadU(d, rows[k] + i), sum);
      }
      hn::StoreU(sum, d, out + i);
    }
  }
  BlendTail(rows, weight, taps, i, n, out);
}

// The elements of `in` at `index`. If all are in [first, first + Lanes(d)), `table` holds those.
template <class V, class VI>
HWY_INLINE V At(const FloatTag d, const V table, int32_t first, const VI index) {
  const hn::RebindToSigned<FloatTag> di;
  return hn::TableLookupLanes(table, hn::IndicesFromVec(d, hn::Sub(index, hn::Set(di, first))));
}

// When enlarging, adjacent outputs read the same few elements: these are loaded together and looked
// up. Elements that are too far apart are gathered one by one.
void BlendColumns(const float* in, int64_t length, const int32_t* index, const float* weight,
                  int taps, int64_t n, float* out) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const bool few = length <= lanes;
  HWY_ALIGN float all[HWY_LANES(float)] = {};
  if (few) std::copy_n(in, length, all);
  const auto table = hn::Load(d, all);
  int64_t o = 0;
  for (; o + lanes <= n; o += lanes) {
    auto sum = hn::Zero(d);
    for (int k = 0; k < taps; ++k) {
      const auto at = hn::LoadU(di, index + k * n + o);
      const auto w = hn::LoadU(d, weight + k * n + o);
      if (few) {
        sum = hn::MulAdd(w, At(d, table, 0, at), sum);
        continue;
      }
      // A whole vector starting at the first one's element, or as close to it as the array allows.
      const int32_t least = std::min(index[k * n + o], index[k * n + o + lanes - 1]);
      const auto first = static_cast<int32_t>(std::min<int64_t>(least, length - lanes));
      const auto near = hn::And(hn::Gt(at, hn::Set(di, first - 1)),
                                hn::Lt(at, hn::Set(di, first + static_cast<int32_t>(lanes))));
      const auto v = hn::AllTrue(di, near) ? At(d, hn::LoadU(d, in + first), first, at)
                                           : hn::GatherIndex(d, in, at);
      sum = hn::MulAdd(w, v, sum);
    }
    hn::StoreU(sum, d, out + o);
  }
  for (; o < n; ++o) {
    float sum = 0;
    for (int k = 0; k < taps; ++k) sum += weight[k * n + o] * in[index[k * n + o]];
    out[o] = sum;
  }
}

void BlendPixels(const float* in, const int32_t* index, const float* weight, int taps, int64_t n,
                 int64_t unit, float* out) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t o = 0; o < n; ++o, out += unit) {
    int64_t j = 0;
    for (; j + lanes <= unit; j += lanes) {
      auto sum = hn::Zero(d);
      for (int k = 0; k < taps; ++k) {
        const float* pixel = in + index[k * n + o] * unit;
        sum = hn::MulAdd(hn::Set(d, weight[k * n + o]), hn::LoadU(d, pixel + j), sum);
      }
      hn::StoreU(sum, d, out + j);
    }
    for (; j < unit; ++j) {
      float sum = 0;
      for (int k = 0; k < taps; ++k) sum += weight[k * n + o] * in[index[k * n + o] * unit + j];
      out[j] = sum;
    }
  }
}

void DoubleLinear(const float* in, int64_t n, float* out) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto quarter = hn::Set(d, 0.25f);
  const auto most = hn::Set(d, 0.75f);
  const auto at = [&](int64_t i) {
    const float before = in[i == 0 ? 0 : i - 1];
    const float after = in[i == n - 1 ? i : i + 1];
    out[2 * i] = 0.25f * before + 0.75f * in[i];
    out[2 * i + 1] = 0.75f * in[i] + 0.25f * after;
  };
  at(0);
  int64_t i = 1;
  for (; i + lanes < n; i += lanes) {
    const auto here = hn::Mul(most, hn::LoadU(d, in + i));
    hn::StoreInterleaved2(hn::MulAdd(quarter, hn::LoadU(d, in + i - 1), here),
                          hn::MulAdd(quarter, hn::LoadU(d, in + i + 1), here), d, out + 2 * i);
  }
  for (; i < n; ++i) at(i);
}

void DoubleNearest(const uint32_t* in, int64_t n, uint32_t* out) {
  const hn::ScalableTag<uint32_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, in + i);
    hn::StoreInterleaved2(v, v, d, out + 2 * i);
  }
  for (; i < n; ++i) out[2 * i] = out[2 * i + 1] = in[i];
}

const ResizeLoops* Loops() {
  static constexpr ResizeLoops kLoops = {BlendRows, BlendColumns, BlendPixels, DoubleLinear,
                                         DoubleNearest};
  return &kLoops;
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {
namespace {
HWY_EXPORT(Loops);
}  // namespace

const ResizeLoops& GetResizeLoops() { return *HWY_DYNAMIC_DISPATCH(Loops)(); }

}  // namespace chairlift
#endif  // HWY_ONCE
