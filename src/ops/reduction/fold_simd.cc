// Row and column folds of float32, one build per instruction set.
#include <algorithm>
#include <limits>

#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/reduction/fold_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/extrema.h"
#include "ops/reduction/fold_simd.h"
#include "ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace {

// Each fold: Step(acc, x) over elements; Merge(acc, acc) of two accumulators; a start value.
struct SumFold {
  static constexpr float kStart = 0.0f;
  static HWY_INLINE FloatVec Step(FloatTag, FloatVec acc, FloatVec x, FloatVec) {
    return hn::Add(acc, x);
  }
  static HWY_INLINE FloatVec Merge(FloatVec a, FloatVec b) { return hn::Add(a, b); }
  static HWY_INLINE FloatVec OfLanes(FloatTag d, FloatVec v) { return hn::SumOfLanes(d, v); }
  static double MergeScalar(double a, double b) { return a + b; }
};
struct SumAbsFold : SumFold {
  static HWY_INLINE FloatVec Step(FloatTag, FloatVec acc, FloatVec x, FloatVec) {
    return hn::Add(acc, hn::Abs(x));
  }
};
struct SumSquareFold : SumFold {
  static HWY_INLINE FloatVec Step(FloatTag, FloatVec acc, FloatVec x, FloatVec) {
    return hn::MulAdd(x, x, acc);
  }
};
struct SumFromFold : SumFold {
  static HWY_INLINE FloatVec Step(FloatTag, FloatVec acc, FloatVec x, FloatVec shift) {
    return hn::Add(acc, hn::Sub(x, shift));
  }
};
struct SumExpFold : SumFold {
  static HWY_INLINE FloatVec Step(FloatTag d, FloatVec acc, FloatVec x, FloatVec shift) {
    return hn::Add(acc, VExp(d, hn::Sub(x, shift)));
  }
};
struct MaxFold {
  static constexpr float kStart = -std::numeric_limits<float>::infinity();
  static HWY_INLINE FloatVec Step(FloatTag, FloatVec acc, FloatVec x, FloatVec) {
    return Larger(acc, x);
  }
  static HWY_INLINE FloatVec Merge(FloatVec a, FloatVec b) { return Larger(a, b); }
  static HWY_INLINE FloatVec OfLanes(FloatTag d, FloatVec v) {
    return hn::AllFalse(d, hn::IsNaN(v)) ? hn::MaxOfLanes(d, v) : hn::NaN(d);
  }
  static double MergeScalar(double a, double b) { return chairlift::Larger(b, a); }
};
struct MinFold {
  static constexpr float kStart = std::numeric_limits<float>::infinity();
  static HWY_INLINE FloatVec Step(FloatTag, FloatVec acc, FloatVec x, FloatVec) {
    return Smaller(acc, x);
  }
  static HWY_INLINE FloatVec Merge(FloatVec a, FloatVec b) { return Smaller(a, b); }
  static HWY_INLINE FloatVec OfLanes(FloatTag d, FloatVec v) {
    return hn::AllFalse(d, hn::IsNaN(v)) ? hn::MinOfLanes(d, v) : hn::NaN(d);
  }
  static double MergeScalar(double a, double b) { return chairlift::Smaller(b, a); }
};

template <typename Fold>
double FoldRow(const float* x, int64_t count, float shift) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto s = hn::Set(d, shift);
  constexpr int64_t kStretch = 8192;
  double total = Fold::kStart;
  for (int64_t begin = 0; begin < count; begin += kStretch) {
    const float* p = x + begin;
    const int64_t n = std::min(kStretch, count - begin);
    auto a0 = hn::Set(d, Fold::kStart);
    auto a1 = a0;
    auto a2 = a0;
    auto a3 = a0;
    int64_t i = 0;
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
      a0 = Fold::Step(d, a0, hn::LoadU(d, p + i), s);
      a1 = Fold::Step(d, a1, hn::LoadU(d, p + i + lanes), s);
      a2 = Fold::Step(d, a2, hn::LoadU(d, p + i + 2 * lanes), s);
      a3 = Fold::Step(d, a3, hn::LoadU(d, p + i + 3 * lanes), s);
    }
    for (; i + lanes <= n; i += lanes) a0 = Fold::Step(d, a0, hn::LoadU(d, p + i), s);
    if (i < n) {
      const auto part = static_cast<size_t>(n - i);
      const auto next = Fold::Step(d, a1, LoadPart(d, p + i, part), s);
      a1 = hn::IfThenElse(hn::FirstN(d, part), next, a1);
    }
    const auto merged = Fold::Merge(Fold::Merge(a0, a1), Fold::Merge(a2, a3));
    total = Fold::MergeScalar(total, hn::GetLane(Fold::OfLanes(d, merged)));
  }
  return total;
}

HWY_INLINE FloatVec LoadUpTo(FloatTag d, const float* p, size_t n) {
  return n >= hn::Lanes(d) ? hn::LoadU(d, p) : LoadPart(d, p, n);
}

template <typename Fold>
HWY_INLINE void MergeInto(FloatTag d, FloatVec acc, int64_t count, double* accumulators) {
  HWY_ALIGN float lanes[hn::MaxLanes(FloatTag())];
  hn::Store(acc, d, lanes);
  for (int64_t k = 0; k < count; ++k) {
    accumulators[k] = Fold::MergeScalar(accumulators[k], lanes[k]);
  }
}

template <typename Fold, bool kShift>
void FoldColumns(const float* x, int64_t rows, int64_t stride, int64_t cols, const float* shift,
                 double* accumulators) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kStretch = 128;
  for (int64_t begin = 0; begin < rows; begin += kStretch) {
    const int64_t end = std::min(rows, begin + kStretch);
    int64_t c = 0;
    // Four vectors in parallel, so that their dependency chains overlap.
    for (; c + 4 * lanes <= cols; c += 4 * lanes) {
      const auto shift_at = [&](int64_t k) HWY_ATTR {
        return kShift ? hn::LoadU(d, shift + c + k * lanes) : hn::Zero(d);
      };
      const auto h0 = shift_at(0);
      const auto h1 = shift_at(1);
      const auto h2 = shift_at(2);
      const auto h3 = shift_at(3);
      auto a0 = hn::Set(d, Fold::kStart);
      auto a1 = a0;
      auto a2 = a0;
      auto a3 = a0;
      for (int64_t r = begin; r < end; ++r) {
        const float* p = x + r * stride + c;
        a0 = Fold::Step(d, a0, hn::LoadU(d, p), h0);
        a1 = Fold::Step(d, a1, hn::LoadU(d, p + lanes), h1);
        a2 = Fold::Step(d, a2, hn::LoadU(d, p + 2 * lanes), h2);
        a3 = Fold::Step(d, a3, hn::LoadU(d, p + 3 * lanes), h3);
      }
      MergeInto<Fold>(d, a0, lanes, accumulators + c);
      MergeInto<Fold>(d, a1, lanes, accumulators + c + lanes);
      MergeInto<Fold>(d, a2, lanes, accumulators + c + 2 * lanes);
      MergeInto<Fold>(d, a3, lanes, accumulators + c + 3 * lanes);
    }
    for (; c < cols; c += lanes) {
      const int64_t part = std::min(lanes, cols - c);
      const auto size = static_cast<size_t>(part);
      const auto s = kShift ? LoadUpTo(d, shift + c, size) : hn::Zero(d);
      auto acc = hn::Set(d, Fold::kStart);
      for (int64_t r = begin; r < end; ++r) {
        acc = Fold::Step(d, acc, LoadUpTo(d, x + r * stride + c, size), s);
      }
      MergeInto<Fold>(d, acc, part, accumulators + c);
    }
  }
}

template <typename Fold, bool kShift = false>
FoldFns Fns() {
  return {FoldRow<Fold>, FoldColumns<Fold, kShift>, Fold::kStart};
}

FoldFns Find(FloatFold op) {
  switch (op) {
    case FloatFold::kSum:
      return Fns<SumFold>();
    case FloatFold::kSumAbs:
      return Fns<SumAbsFold>();
    case FloatFold::kSumSquare:
      return Fns<SumSquareFold>();
    case FloatFold::kSumFrom:
      return Fns<SumFromFold, true>();
    case FloatFold::kSumExp:
      return Fns<SumExpFold, true>();
    case FloatFold::kMax:
      return Fns<MaxFold>();
    case FloatFold::kMin:
      return Fns<MinFold>();
  }
  return {};
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

FoldFns FindFold(FloatFold op) { return HWY_DYNAMIC_DISPATCH(Find)(op); }

}  // namespace chairlift
#endif  // HWY_ONCE
