// Functions of one float32 operand, one build per instruction set.
#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise/float_unary_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/elementwise/float_functions-inl.h"
#include "ops/elementwise/float_simd.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace {

template <typename Op>
void Block(const ElementBlock& block) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const auto a = hn::Set(d, static_cast<float>(block.params[0]));
  const auto b = hn::Set(d, static_cast<float>(block.params[1]));
  const auto n = static_cast<size_t>(block.cols);
  for (int64_t r = 0; r < block.rows; ++r) {
    const float* x = static_cast<const float*>(block.in[0]) + r * block.row_step[0];
    float* out = static_cast<float*>(block.out) + r * block.cols;
    size_t i = 0;
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      const auto y0 = Op::Apply(d, hn::LoadU(d, x + i), a, b);
      const auto y1 = Op::Apply(d, hn::LoadU(d, x + i + lanes), a, b);
      hn::StoreU(y0, d, out + i);
      hn::StoreU(y1, d, out + i + lanes);
    }
    for (; i + lanes <= n; i += lanes) {
      hn::StoreU(Op::Apply(d, hn::LoadU(d, x + i), a, b), d, out + i);
    }
    if (i < n) StorePart(Op::Apply(d, LoadPart(d, x + i, n - i), a, b), d, out + i, n - i);
  }
}

ElementFn Find(FloatUnary op) {
  switch (op) {
#define CHAIRLIFT_CASE(kind, function) \
  case FloatUnary::kind:               \
    return Block<functions::function>;
    CHAIRLIFT_FLOAT_UNARY(CHAIRLIFT_CASE)
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

// A unary operand has the output's shape, so its column stride is always 1 (or there is one
// element).
ElementFn FindFloatUnary(FloatUnary op) { return HWY_DYNAMIC_DISPATCH(Find)(op); }

}  // namespace chairlift
#endif  // HWY_ONCE
