// The kernel of fused_row.h: every operation of the program on a few vectors, then on the next few.
#include <cstring>

#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise/fused_row_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/elementwise/float_functions-inl.h"
#include "ops/elementwise/fused_row.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace {

constexpr FloatTag kD;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(kD));

// Eight vectors, or (kPart) only the first `count` elements of one.
template <bool kPart>
class Chunk {
 public:
  HWY_INLINE explicit Chunk(int64_t count) : count_(static_cast<size_t>(count)) {}

  template <typename F>
  HWY_INLINE void Each(F f) {
    x0_ = f(x0_, 0);
    if constexpr (!kPart) {
      x1_ = f(x1_, kLanes);
      x2_ = f(x2_, 2 * kLanes);
      x3_ = f(x3_, 3 * kLanes);
      x4_ = f(x4_, 4 * kLanes);
      x5_ = f(x5_, 5 * kLanes);
      x6_ = f(x6_, 6 * kLanes);
      x7_ = f(x7_, 7 * kLanes);
    }
  }
  HWY_INLINE FloatVec Load(const float* from) const {
    return kPart ? LoadPart(kD, from, count_) : hn::LoadU(kD, from);
  }
  HWY_INLINE void Store(float* to) const {
    if constexpr (kPart) {
      StorePart(x0_, kD, to, count_);
    } else {
      hn::StoreU(x0_, kD, to);
      hn::StoreU(x1_, kD, to + kLanes);
      hn::StoreU(x2_, kD, to + 2 * kLanes);
      hn::StoreU(x3_, kD, to + 3 * kLanes);
      hn::StoreU(x4_, kD, to + 4 * kLanes);
      hn::StoreU(x5_, kD, to + 5 * kLanes);
      hn::StoreU(x6_, kD, to + 6 * kLanes);
      hn::StoreU(x7_, kD, to + 7 * kLanes);
    }
  }
  HWY_INLINE FloatVec Choose(const uint8_t* condition, FloatVec yes, FloatVec no) const {
    const hn::Rebind<uint8_t, FloatTag> bytes;
    const hn::Rebind<uint32_t, FloatTag> words;
    HWY_ALIGN uint8_t part[kLanes] = {};
    if constexpr (kPart) {
      std::memcpy(part, condition, count_);
      condition = part;
    }
    const auto wide = hn::PromoteTo(words, hn::LoadU(bytes, condition));
    return hn::IfThenElse(hn::RebindMask(kD, hn::Ne(wide, hn::Zero(words))), yes, no);
  }

 private:
  size_t count_;
  FloatVec x0_ = hn::Zero(kD), x1_ = hn::Zero(kD), x2_ = hn::Zero(kD), x3_ = hn::Zero(kD);
  FloatVec x4_ = hn::Zero(kD), x5_ = hn::Zero(kD), x6_ = hn::Zero(kD), x7_ = hn::Zero(kD);
};

// x and the parameters, or x and y.
template <typename Function>
HWY_INLINE FloatVec Unary(const FusedRowOp& op, FloatVec x) {
  return Function::Apply(kD, x, hn::Set(kD, op.alpha), hn::Set(kD, op.beta));
}

template <bool kPart>
HWY_INLINE void RunOp(const FusedRowOp& op, int64_t at, Chunk<kPart>& x) {
  const float* y = op.operand + (at & op.walk);
  switch (op.code) {
    case FusedRowOp::kLoad:
      return x.Each([&](FloatVec, int64_t i) HWY_ATTR { return x.Load(y + i); });
    case FusedRowOp::kStore:
      return x.Store(op.operand);
#define CHAIRLIFT_CASE(name, function)      \
  case FusedRowOp::Unary(FloatUnary::name): \
    return x.Each([&](FloatVec v, int64_t) HWY_ATTR { return Unary<functions::function>(op, v); });
      CHAIRLIFT_FLOAT_UNARY(CHAIRLIFT_CASE)
#undef CHAIRLIFT_CASE
#define CHAIRLIFT_CASE(name, function)                                                        \
  case FusedRowOp::Binary(FloatBinary::name):                                                 \
    return x.Each([&](FloatVec v, int64_t i)                                                  \
                      HWY_ATTR { return functions::function::Apply(kD, v, x.Load(y + i)); }); \
  case FusedRowOp::Reversed(FloatBinary::name):                                               \
    return x.Each([&](FloatVec v, int64_t i)                                                  \
                      HWY_ATTR { return functions::function::Apply(kD, x.Load(y + i), v); });
      CHAIRLIFT_FLOAT_BINARY(CHAIRLIFT_CASE)
#undef CHAIRLIFT_CASE
    case FusedRowOp::kKeepWhere:
    case FusedRowOp::kChangeWhere: {
      const uint8_t* condition = op.condition + (at & op.condition_walk);
      const bool keep = op.code == FusedRowOp::kKeepWhere;
      return x.Each([&](FloatVec v, int64_t i) HWY_ATTR {
        const FloatVec other = x.Load(y + i);
        return keep ? x.Choose(condition + i, v, other) : x.Choose(condition + i, other, v);
      });
    }
    default:
      return;
  }
}

void Row(std::span<const FusedRowOp> ops, float* out, int64_t n) {
  static_assert(8 * kLanes <= kFusedRowChunk);
  int64_t at = 0;
  for (; at + 8 * kLanes <= n; at += 8 * kLanes) {
    Chunk<false> x(8 * kLanes);
    for (const FusedRowOp& op : ops) RunOp(op, at, x);
    x.Store(out + at);
  }
  for (; at < n; at += kLanes) {
    Chunk<true> x(HWY_MIN(kLanes, n - at));
    for (const FusedRowOp& op : ops) RunOp(op, at, x);
    x.Store(out + at);
  }
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {
namespace {
HWY_EXPORT(Row);
}  // namespace

void RunFusedRow(std::span<const FusedRowOp> ops, float* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Row)(ops, out, n);
}

}  // namespace chairlift
#endif  // HWY_ONCE
