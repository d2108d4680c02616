// Arithmetic of two float32 operands, one build per instruction set.
#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise/float_binary_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/elementwise/float_functions-inl.h"
#include "ops/elementwise/float_simd.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace {

// One row; kX and kY tell which operands are single elements.
template <typename Op, bool kX, bool kY>
HWY_INLINE void Row(const float* x, const float* y, float* out, size_t n) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const auto sx = hn::Set(d, kX ? *x : 0.0f);
  const auto sy = hn::Set(d, kY ? *y : 0.0f);
  const auto at = [&](size_t i) HWY_ATTR {
    return Op::Apply(d, kX ? sx : hn::LoadU(d, x + i), kY ? sy : hn::LoadU(d, y + i));
  };
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = at(i);
    const auto b = at(i + lanes);
    hn::StoreU(a, d, out + i);
    hn::StoreU(b, d, out + i + lanes);
  }
  for (; i + lanes <= n; i += lanes) hn::StoreU(at(i), d, out + i);
  if (i < n) {
    const auto v =
        Op::Apply(d, kX ? sx : LoadPart(d, x + i, n - i), kY ? sy : LoadPart(d, y + i, n - i));
    StorePart(v, d, out + i, n - i);
  }
}

template <typename Op>
void Block(const ElementBlock& b) {
  const auto n = static_cast<size_t>(b.cols);
  for (int64_t r = 0; r < b.rows; ++r) {
    const float* x = static_cast<const float*>(b.in[0]) + r * b.row_step[0];
    const float* y = static_cast<const float*>(b.in[1]) + r * b.row_step[1];
    float* out = static_cast<float*>(b.out) + r * b.cols;
    if (b.col_step[0] != 0 && b.col_step[1] != 0) {
      Row<Op, false, false>(x, y, out, n);
    } else if (b.col_step[0] != 0) {
      Row<Op, false, true>(x, y, out, n);
    } else if (b.col_step[1] != 0) {
      Row<Op, true, false>(x, y, out, n);
    } else {
      Row<Op, true, true>(x, y, out, n);
    }
  }
}

ElementFn Find(FloatBinary op) {
  switch (op) {
#define CHAIRLIFT_CASE(kind, function) \
  case FloatBinary::kind:              \
    return Block<functions::function>;
    CHAIRLIFT_FLOAT_BINARY(CHAIRLIFT_CASE)
#undef CHAIRLIFT_CASE
  }
  return nullptr;
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

ElementFn FindFloatBinary(FloatBinary op) { return HWY_DYNAMIC_DISPATCH(Find)(op); }

}  // namespace chairlift
#endif  // HWY_ONCE
