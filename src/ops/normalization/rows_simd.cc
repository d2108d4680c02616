// Softmax, layer normalisation, moments and affine maps of float32 rows, one build per instruction
// set.
#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/normalization/rows_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/normalization/rows_simd.h"
#include "ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE FloatVec LoadUpTo(FloatTag d, const float* p, size_t n) {
  return n >= hn::Lanes(d) ? hn::LoadU(d, p) : LoadPart(d, p, n);
}
HWY_INLINE void StoreUpTo(FloatVec v, FloatTag d, float* p, size_t n) {
  if (n >= hn::Lanes(d)) {
    hn::StoreU(v, d, p);
  } else {
    StorePart(v, d, p, n);
  }
}
// v in the first n lanes, `otherwise` in the rest.
HWY_INLINE FloatVec OnlyFirst(FloatTag d, FloatVec v, size_t n, FloatVec otherwise) {
  return n >= hn::Lanes(d) ? v : hn::IfThenElse(hn::FirstN(d, n), v, otherwise);
}

HWY_INLINE FloatVec RowMax(FloatTag d, const float* x, size_t n) {
  const size_t lanes = hn::Lanes(d);
  auto m0 = hn::Neg(hn::Inf(d));
  auto m1 = m0;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    m0 = hn::Max(m0, hn::LoadU(d, x + i));
    m1 = hn::Max(m1, hn::LoadU(d, x + i + lanes));
  }
  for (; i < n; i += lanes) {
    m0 = hn::Max(m0, OnlyFirst(d, LoadUpTo(d, x + i, n - i), n - i, m0));
  }
  return hn::MaxOfLanes(d, hn::Max(m0, m1));
}

// Σ exp(x − max); the exponentials go to y if it is not null.
template <bool kStore>
HWY_INLINE FloatVec RowSumExp(FloatTag d, const float* x, float* y, size_t n, FloatVec max) {
  const size_t lanes = hn::Lanes(d);
  const auto zero = hn::Zero(d);
  auto s0 = zero;
  auto s1 = zero;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto e0 = VExp(d, hn::Sub(hn::LoadU(d, x + i), max));
    const auto e1 = VExp(d, hn::Sub(hn::LoadU(d, x + i + lanes), max));
    if (kStore) {
      hn::StoreU(e0, d, y + i);
      hn::StoreU(e1, d, y + i + lanes);
    }
    s0 = hn::Add(s0, e0);
    s1 = hn::Add(s1, e1);
  }
  for (; i < n; i += lanes) {
    const auto e = VExp(d, hn::Sub(LoadUpTo(d, x + i, n - i), max));
    if (kStore) StoreUpTo(e, d, y + i, n - i);
    s0 = hn::Add(s0, OnlyFirst(d, e, n - i, zero));
  }
  return hn::SumOfLanes(d, hn::Add(s0, s1));
}

HWY_INLINE void ScaleRow(FloatTag d, float* y, size_t n, FloatVec a) {
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < n; i += lanes) {
    StoreUpTo(hn::Mul(a, LoadUpTo(d, y + i, n - i)), d, y + i, n - i);
  }
}

void Softmax(const float* x, float* y, int64_t rows, int64_t n) {
  const FloatTag d;
  const auto size = static_cast<size_t>(n);
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    const auto sum = RowSumExp<true>(d, x, y, size, RowMax(d, x, size));
    ScaleRow(d, y, size, hn::Div(hn::Set(d, 1.0f), sum));
  }
}

void LogSoftmax(const float* x, float* y, int64_t rows, int64_t n) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const auto size = static_cast<size_t>(n);
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    const auto max = RowMax(d, x, size);
    const auto log_sum = VLog(d, RowSumExp<false>(d, x, nullptr, size, max));
    for (size_t i = 0; i < size; i += lanes) {
      const auto v = hn::Sub(hn::Sub(LoadUpTo(d, x + i, size - i), max), log_sum);
      StoreUpTo(v, d, y + i, size - i);
    }
  }
}

// A group of columns is processed row by row, with its maxima and sums beside it.
template <bool kLog>
void SoftmaxColumns(const float* x, float* y, int64_t n, int64_t inner, int64_t first,
                    int64_t last) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN float max[kSoftmaxColumns];
  HWY_ALIGN float sum[kSoftmaxColumns];
  for (int64_t begin = first; begin < last; begin += kSoftmaxColumns) {
    const int64_t cols = last - begin < kSoftmaxColumns ? last - begin : kSoftmaxColumns;
    for (int64_t c = 0; c < cols; c += lanes) {
      hn::Store(hn::Neg(hn::Inf(d)), d, max + c);
      hn::Store(hn::Zero(d), d, sum + c);
    }
    for (int64_t i = 0; i < n; ++i) {
      const float* row = x + i * inner + begin;
      for (int64_t c = 0; c < cols; c += lanes) {
        const auto v = LoadUpTo(d, row + c, static_cast<size_t>(cols - c));
        hn::Store(hn::Max(hn::Load(d, max + c), v), d, max + c);
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = i * inner + begin;
      for (int64_t c = 0; c < cols; c += lanes) {
        const auto left = static_cast<size_t>(cols - c);
        const auto e = VExp(d, hn::Sub(LoadUpTo(d, x + at + c, left), hn::Load(d, max + c)));
        if (!kLog) StoreUpTo(e, d, y + at + c, left);
        hn::Store(hn::Add(hn::Load(d, sum + c), e), d, sum + c);
      }
    }
    for (int64_t c = 0; c < cols; c += lanes) {
      const auto total = hn::Load(d, sum + c);
      hn::Store(kLog ? VLog(d, total) : hn::Div(hn::Set(d, 1.0f), total), d, sum + c);
    }
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = i * inner + begin;
      for (int64_t c = 0; c < cols; c += lanes) {
        const auto left = static_cast<size_t>(cols - c);
        const auto s = hn::Load(d, sum + c);
        const auto v =
            kLog ? hn::Sub(hn::Sub(LoadUpTo(d, x + at + c, left), hn::Load(d, max + c)), s)
                 : hn::Mul(LoadUpTo(d, y + at + c, left), s);
        StoreUpTo(v, d, y + at + c, left);
      }
    }
  }
}

// s of LayerNormRows at element i of a row with `left` elements left.
HWY_INLINE FloatVec SkipSum(FloatTag d, const LayerNormRows& p, const float* x,
                            const float* residual, size_t i, size_t left) {
  auto v = LoadUpTo(d, x + i, left);
  if (residual != nullptr) v = hn::Add(v, LoadUpTo(d, residual + i, left));
  if (p.bias != nullptr) v = hn::Add(v, LoadUpTo(d, p.bias + i, left));
  return v;
}

// The mean is that of the first pass plus the error found by the second: `mean` + `rest`. The first
// pass sums differences from an element, so that equal elements give exactly their value.
void LayerNorm(const LayerNormRows& p) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const auto n = static_cast<size_t>(p.n);
  const auto zero = hn::Zero(d);
  const auto inv_n = hn::Set(d, 1.0f / static_cast<float>(p.n));
  const bool skip = p.residual != nullptr || p.bias != nullptr || p.sum != nullptr;
  for (int64_t r = 0; r < p.rows && n > 0; ++r) {
    const float* x = p.x + r * p.n;
    const float* residual = p.residual == nullptr ? nullptr : p.residual + r * p.n;
    float* y = p.y + r * p.n;
    // The sum is kept in its own output if requested, else in the output until that is written.
    const float* s = x;
    auto s0 = zero;
    auto s1 = zero;
    auto from = zero;
    if (skip) {
      float* kept = p.sum != nullptr ? p.sum + r * p.n : y;
      from = hn::Set(d, hn::GetLane(SkipSum(d, p, x, residual, 0, n)));
      for (size_t i = 0; i < n; i += lanes) {
        const auto v = SkipSum(d, p, x, residual, i, n - i);
        StoreUpTo(v, d, kept + i, n - i);
        s0 = hn::Add(s0, OnlyFirst(d, hn::Sub(v, from), n - i, zero));
      }
      s = kept;
    } else if (p.centred) {
      from = hn::Set(d, x[0]);
      size_t i = 0;
      for (; i + 2 * lanes <= n; i += 2 * lanes) {
        s0 = hn::Add(s0, hn::Sub(hn::LoadU(d, x + i), from));
        s1 = hn::Add(s1, hn::Sub(hn::LoadU(d, x + i + lanes), from));
      }
      for (; i < n; i += lanes) {
        s0 = hn::Add(s0, OnlyFirst(d, hn::Sub(LoadUpTo(d, x + i, n - i), from), n - i, zero));
      }
    }
    const auto mean =
        p.centred ? hn::MulAdd(hn::SumOfLanes(d, hn::Add(s0, s1)), inv_n, from) : zero;
    auto v0 = zero;
    auto v1 = zero;
    auto d0 = zero;
    auto d1 = zero;
    size_t i = 0;
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      const auto c0 = hn::Sub(hn::LoadU(d, s + i), mean);
      const auto c1 = hn::Sub(hn::LoadU(d, s + i + lanes), mean);
      v0 = hn::MulAdd(c0, c0, v0);
      v1 = hn::MulAdd(c1, c1, v1);
      d0 = hn::Add(d0, c0);
      d1 = hn::Add(d1, c1);
    }
    for (; i < n; i += lanes) {
      const auto c = OnlyFirst(d, hn::Sub(LoadUpTo(d, s + i, n - i), mean), n - i, zero);
      v0 = hn::MulAdd(c, c, v0);
      d0 = hn::Add(d0, c);
    }
    const auto rest = p.centred ? hn::Mul(hn::SumOfLanes(d, hn::Add(d0, d1)), inv_n) : zero;
    const auto about_mean = hn::Mul(hn::SumOfLanes(d, hn::Add(v0, v1)), inv_n);
    const auto difference = hn::NegMulAdd(rest, rest, about_mean);
    const auto variance = hn::IfThenElse(hn::Lt(difference, zero), zero, difference);
    const auto inv_std =
        hn::Div(hn::Set(d, 1.0f), hn::Sqrt(hn::Add(variance, hn::Set(d, p.epsilon))));
    const auto off = hn::Mul(rest, inv_std);
    for (i = 0; i < n; i += lanes) {
      const size_t left = n - i;
      const auto normal = hn::MulSub(hn::Sub(LoadUpTo(d, s + i, left), mean), inv_std, off);
      const auto shift = p.shift != nullptr ? LoadUpTo(d, p.shift + i, left) : zero;
      StoreUpTo(hn::MulAdd(normal, LoadUpTo(d, p.scale + i, left), shift), d, y + i, left);
    }
    if (p.mean != nullptr) p.mean[r] = hn::GetLane(hn::Add(mean, rest));
    if (p.inv_std != nullptr) p.inv_std[r] = hn::GetLane(inv_std);
  }
}

RowMoments Moments(const float* x, int64_t count, float from) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const auto shift = hn::Set(d, from);
  constexpr int64_t kStretch = 1024;
  RowMoments total = {0, 0};
  for (int64_t begin = 0; begin < count; begin += kStretch) {
    const float* p = x + begin;
    const auto n = static_cast<size_t>(count - begin < kStretch ? count - begin : kStretch);
    auto s0 = hn::Zero(d);
    auto s1 = s0;
    auto v0 = s0;
    auto v1 = s0;
    size_t i = 0;
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      const auto c0 = hn::Sub(hn::LoadU(d, p + i), shift);
      const auto c1 = hn::Sub(hn::LoadU(d, p + i + lanes), shift);
      s0 = hn::Add(s0, c0);
      s1 = hn::Add(s1, c1);
      v0 = hn::MulAdd(c0, c0, v0);
      v1 = hn::MulAdd(c1, c1, v1);
    }
    for (; i < n; i += lanes) {
      const auto c = OnlyFirst(d, hn::Sub(LoadUpTo(d, p + i, n - i), shift), n - i, hn::Zero(d));
      s0 = hn::Add(s0, c);
      v0 = hn::MulAdd(c, c, v0);
    }
    total.sum += hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1)));
    total.squares += hn::GetLane(hn::SumOfLanes(d, hn::Add(v0, v1)));
  }
  return total;
}

void Affine(const float* x, float* y, int64_t n, float mean, float a, float b) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const auto size = static_cast<size_t>(n);
  const auto vm = hn::Set(d, mean);
  const auto va = hn::Set(d, a);
  const auto vb = hn::Set(d, b);
  for (size_t i = 0; i < size; i += lanes) {
    const auto centred = hn::Sub(LoadUpTo(d, x + i, size - i), vm);
    StoreUpTo(hn::MulAdd(va, centred, vb), d, y + i, size - i);
  }
}

void AffineColumns(const float* x, float* y, int64_t rows, int64_t n, const float* mean,
                   const float* a, const float* b) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const auto size = static_cast<size_t>(n);
  for (size_t c = 0; c < size; c += lanes) {
    const size_t left = size - c;
    const auto vm = LoadUpTo(d, mean + c, left);
    const auto va = LoadUpTo(d, a + c, left);
    const auto vb = LoadUpTo(d, b + c, left);
    for (int64_t r = 0; r < rows; ++r) {
      const auto centred = hn::Sub(LoadUpTo(d, x + r * n + c, left), vm);
      StoreUpTo(hn::MulAdd(va, centred, vb), d, y + r * n + c, left);
    }
  }
}

RowFns Find() {
  return {Softmax, LogSoftmax, SoftmaxColumns<false>, SoftmaxColumns<true>, LayerNorm,
          Moments, Affine,     AffineColumns};
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {
namespace {
HWY_EXPORT(Find);
}  // namespace

RowFns FindRowFns() { return HWY_DYNAMIC_DISPATCH(Find)(); }

}  // namespace chairlift
#endif  // HWY_ONCE
