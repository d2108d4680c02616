// Pooling of float32 planes, one build per instruction set.
#include <algorithm>
#include <limits>

#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pooling/pool_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/pooling/pooling.h"
#include "ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

struct MaxOp {
  static float Initial() { return -std::numeric_limits<float>::infinity(); }
  static float OfNone() { return std::numeric_limits<float>::lowest(); }
  template <class V>
  static HWY_INLINE V Combine(V a, V b) {
    return Larger(a, b);
  }
};
struct SumOp {
  static float Initial() { return 0.0f; }
  static float OfNone() { return 0.0f; }
  template <class V>
  static HWY_INLINE V Combine(V a, V b) {
    return hn::Add(a, b);
  }
};

// The factor from an average's sum.
HWY_INLINE float ScaleOf(PoolKind kind, const Taps& tz, const Taps& ty, const Taps& tx) {
  const int64_t count = kind == PoolKind::kAverage
                            ? tz.count * ty.count * tx.count
                            : tz.with_padding * ty.with_padding * tx.with_padding;
  return 1.0f / static_cast<float>(std::max<int64_t>(count, 1));
}

// Each window separately.
template <class Op>
HWY_INLINE void Plane(const PoolGeometry& g, PoolKind kind, int block, const float* in,
                      float* out) {
  const hn::CappedTag<float, 16> d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (int64_t z = 0; z < g.out[0]; ++z) {
    const Taps& tz = g.taps[0][z];
    for (int64_t y = 0; y < g.out[1]; ++y) {
      const Taps& ty = g.taps[1][y];
      for (int64_t x = 0; x < g.out[2]; ++x, out += block) {
        const Taps& tx = g.taps[2][x];
        const bool none = tz.count * ty.count * tx.count == 0;
        for (int lane = 0; lane < block; lane += lanes) {
          auto result = hn::Set(d, none ? Op::OfNone() : Op::Initial());
          for (int64_t a = 0; a < tz.count; ++a) {
            const int64_t plane = (tz.first + a * g.dilation[0]) * g.in[1];
            for (int64_t b = 0; b < ty.count; ++b) {
              const int64_t row = (plane + ty.first + b * g.dilation[1]) * g.in[2] + tx.first;
              const float* from = in + row * block + lane;
              for (int64_t c = 0; c < tx.count; ++c, from += g.dilation[2] * block) {
                result = Op::Combine(result, hn::LoadU(d, from));
              }
            }
          }
          if (kind != PoolKind::kMax) {
            result = hn::Mul(result, hn::Set(d, ScaleOf(kind, tz, ty, tx)));
          }
          hn::StoreU(result, d, out + lane);
        }
      }
    }
  }
}

// Folds the rows of an output row's windows into one, `row`, and then each window's columns of it.
template <class Op>
HWY_INLINE void PlaneByRows(const PoolGeometry& g, PoolKind kind, int block, const float* in,
                            float* out, float* row) {
  const hn::CappedTag<float, 16> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = g.in[2] * block;
  for (const Taps& tz : g.taps[0]) {
    for (const Taps& ty : g.taps[1]) {
      for (int64_t i = 0; i < width; i += lanes) {
        auto result = hn::Set(d, Op::Initial());
        for (int64_t a = 0; a < tz.count; ++a) {
          const int64_t plane = (tz.first + a * g.dilation[0]) * g.in[1];
          const float* from = in + (plane + ty.first) * width + i;
          for (int64_t b = 0; b < ty.count; ++b, from += g.dilation[1] * width) {
            result = Op::Combine(result, hn::LoadU(d, from));
          }
        }
        hn::StoreU(result, d, row + i);
      }
      for (const Taps& tx : g.taps[2]) {
        const bool none = tz.count * ty.count * tx.count == 0;
        for (int64_t lane = 0; lane < block; lane += lanes) {
          auto result = hn::Set(d, none ? Op::OfNone() : Op::Initial());
          const float* from = row + tx.first * block + lane;
          for (int64_t c = 0; c < tx.count; ++c, from += g.dilation[2] * block) {
            result = Op::Combine(result, hn::LoadU(d, from));
          }
          if (kind != PoolKind::kMax) {
            result = hn::Mul(result, hn::Set(d, ScaleOf(kind, tz, ty, tx)));
          }
          hn::StoreU(result, d, out + lane);
        }
        out += block;
      }
    }
  }
}

void Blocked(PoolKind kind, const PoolGeometry& g, int block, const float* in, float* out,
             int64_t first, int64_t last, float* row) {
  const bool folds = g.FoldsRows();
  for (int64_t p = first; p < last; ++p) {
    const float* from = in + p * g.InSize() * block;
    float* to = out + p * g.OutSize() * block;
    if (kind == PoolKind::kMax) {
      folds ? PlaneByRows<MaxOp>(g, kind, block, from, to, row)
            : Plane<MaxOp>(g, kind, block, from, to);
    } else {
      folds ? PlaneByRows<SumOp>(g, kind, block, from, to, row)
            : Plane<SumOp>(g, kind, block, from, to);
    }
  }
}

// All of `size` positions of a plane with `block` channels at each.
template <class Op>
HWY_INLINE void GlobalBlocked(int64_t size, int block, float scale, const float* in, float* out) {
  const hn::CappedTag<float, 16> d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (int lane = 0; lane < block; lane += lanes) {
    // Four sums, so that an addition need not wait for the previous one.
    auto r0 = hn::Set(d, Op::Initial());
    auto r1 = r0, r2 = r0, r3 = r0;
    const float* from = in + lane;
    int64_t i = 0;
    for (; i + 4 <= size; i += 4, from += 4 * block) {
      r0 = Op::Combine(r0, hn::LoadU(d, from));
      r1 = Op::Combine(r1, hn::LoadU(d, from + block));
      r2 = Op::Combine(r2, hn::LoadU(d, from + 2 * block));
      r3 = Op::Combine(r3, hn::LoadU(d, from + 3 * block));
    }
    for (; i < size; ++i, from += block) r0 = Op::Combine(r0, hn::LoadU(d, from));
    r0 = Op::Combine(Op::Combine(r0, r1), Op::Combine(r2, r3));
    hn::StoreU(hn::Mul(r0, hn::Set(d, scale)), d, out + lane);
  }
}

template <class Op>
HWY_INLINE void GlobalPlain(int64_t size, float scale, const float* in, float* out) {
  const hn::CappedTag<float, 16> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = size / lanes;
  float sums[16];
  std::fill_n(sums, lanes, Op::Initial());
  if (whole > 0) GlobalBlocked<Op>(whole, static_cast<int>(lanes), 1.0f, in, sums);
  // The rest as a separate vector.
  float rest[16];
  std::fill_n(rest, lanes, Op::Initial());
  std::copy(in + whole * lanes, in + size, rest);
  hn::StoreU(Op::Combine(hn::LoadU(d, sums), hn::LoadU(d, rest)), d, sums);
  const hn::CappedTag<float, 1> d1;
  auto result = hn::Set(d1, sums[0]);
  for (int64_t i = 1; i < lanes; ++i) result = Op::Combine(result, hn::Set(d1, sums[i]));
  *out = hn::GetLane(result) * scale;
}

void Global(PoolKind kind, int64_t size, int block, const float* in, float* out, int64_t first,
            int64_t last) {
  const float scale =
      kind == PoolKind::kMax ? 1.0f : 1.0f / static_cast<float>(std::max<int64_t>(size, 1));
  for (int64_t p = first; p < last; ++p) {
    const float* from = in + p * size * block;
    float* to = out + p * block;
    if (block == 1) {
      kind == PoolKind::kMax ? GlobalPlain<MaxOp>(size, scale, from, to)
                             : GlobalPlain<SumOp>(size, scale, from, to);
    } else {
      kind == PoolKind::kMax ? GlobalBlocked<MaxOp>(size, block, scale, from, to)
                             : GlobalBlocked<SumOp>(size, block, scale, from, to);
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(Blocked);
HWY_EXPORT(Global);

void PoolBlocked(PoolKind kind, const PoolGeometry& geometry, int block, const float* in,
                 float* out, int64_t first, int64_t last, float* row) {
  HWY_DYNAMIC_DISPATCH(Blocked)(kind, geometry, block, in, out, first, last, row);
}

void GlobalPoolFloat(PoolKind kind, int64_t size, int block, const float* in, float* out,
                     int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(Global)(kind, size, block, in, out, first, last);
}

}  // namespace chairlift
#endif  // HWY_ONCE
