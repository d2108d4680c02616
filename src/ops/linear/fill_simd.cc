// The loop of fill.h, one build per instruction set.
#include <algorithm>

#include "ops/linear/fill.h"
#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/fill_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {

void Clear(float* pixels, int64_t count, int64_t channels, int64_t block) {
  constexpr FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t lane = channels / lanes * lanes; lane < block; lane += lanes) {
    const auto there = LanesBefore(channels - lane);
    float* at = pixels + lane;
    for (int64_t p = 0; p < count; ++p, at += block) {
      hn::StoreU(hn::IfThenElseZero(there, hn::LoadU(d, at)), d, at);
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(Clear);

void ClearFilledUp(float* pixels, int64_t count, int64_t channels, int64_t block) {
  HWY_DYNAMIC_DISPATCH(Clear)(pixels, count, channels, block);
}

}  // namespace chairlift
#endif  // HWY_ONCE
