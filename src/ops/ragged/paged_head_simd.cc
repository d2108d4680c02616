// The kernel of paged_head.h, one build per instruction set.
#include <algorithm>

#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/ragged/paged_head_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/ragged/paged_head.h"
#include "ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace {

float PagedDot(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, size_t n) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  FloatVec s0 = hn::Zero(d), s1 = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    s0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), s0);
    s1 = hn::MulAdd(hn::LoadU(d, a + i + lanes), hn::LoadU(d, b + i + lanes), s1);
  }
  for (; i + lanes <= n; i += lanes) {
    s0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), s0);
  }
  if (i < n) s1 = hn::MulAdd(LoadPart(d, a + i, n - i), LoadPart(d, b + i, n - i), s1);
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1)));
}

// Scores become exp(score − the largest); returns their sum.
float PagedExponentials(float* scores, size_t n) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  float most = scores[0];
  for (size_t i = 1; i < n; ++i) most = std::max(most, scores[i]);
  const FloatVec shift = hn::Set(d, most);
  FloatVec sum = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const FloatVec e = VExp(d, hn::Sub(hn::LoadU(d, scores + i), shift));
    hn::StoreU(e, d, scores + i);
    sum = hn::Add(sum, e);
  }
  if (i < n) {
    const FloatVec e = VExp(d, hn::Sub(LoadPart(d, scores + i, n - i), shift));
    StorePart(e, d, scores + i, n - i);
    sum = hn::Add(sum, hn::IfThenElseZero(hn::FirstN(d, n - i), e));
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// out[0, n) += Σ weights[j] · rows[j][0, n) of `count` rows, n floats each.
void AddPagedRows(const float* HWY_RESTRICT weights, const float* HWY_RESTRICT rows, int64_t count,
                  size_t n, float* HWY_RESTRICT out) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < n; i += lanes) {
    const size_t part = std::min(lanes, n - i);
    const bool whole = part == lanes;
    FloatVec sum = whole ? hn::LoadU(d, out + i) : LoadPart(d, out + i, part);
    const float* at = rows + i;
    for (int64_t j = 0; j < count; ++j, at += n) {
      sum =
          hn::MulAdd(hn::Set(d, weights[j]), whole ? hn::LoadU(d, at) : LoadPart(d, at, part), sum);
    }
    whole ? hn::StoreU(sum, d, out + i) : StorePart(sum, d, out + i, part);
  }
}

void AttendPagedHead(const PagedHead& s, float* scores) {
  for (int64_t i = 0; i < s.queries; ++i) {
    const float* q = s.q + i * s.q_row;
    float* out = s.out + i * s.out_row;
    const int64_t seen = s.causal ? s.cached + i + 1 : s.cached;
    for (int64_t first = 0; first < seen; first += s.block_tokens) {
      const int64_t count = std::min(s.block_tokens, seen - first);
      const float* key = s.keys + s.blocks[first / s.block_tokens] * s.keys_block;
      for (int64_t j = 0; j < count; ++j, key += s.head_size) {
        scores[first + j] = s.scale * PagedDot(q, key, static_cast<size_t>(s.head_size));
      }
    }
    if (s.bias != nullptr) {
      const float* bias = s.bias - (seen - 1);
      for (int64_t j = 0; j < seen; ++j) scores[j] += bias[j];
    }
    const float sum = PagedExponentials(scores, static_cast<size_t>(seen));
    std::fill_n(out, s.value_size, 0.0f);
    for (int64_t first = 0; first < seen; first += s.block_tokens) {
      const int64_t count = std::min(s.block_tokens, seen - first);
      AddPagedRows(scores + first, s.values + s.blocks[first / s.block_tokens] * s.values_block,
                   count, static_cast<size_t>(s.value_size), out);
    }
    for (int64_t c = 0; c < s.value_size; ++c) out[c] /= sum;
  }
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(AttendPagedHead);

void AttendPaged(const PagedHead& head, float* scores) {
  HWY_DYNAMIC_DISPATCH(AttendPagedHead)(head, scores);
}

}  // namespace chairlift
#endif  // HWY_ONCE
