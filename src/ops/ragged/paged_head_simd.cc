// The kernel of paged_head.h, one build per instruction set.
#include <algorithm>
#include <array>
#include <limits>

#include "ops/attention/attention_kernel.h"
#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/ragged/paged_head_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/attention/online_softmax-inl.h"
#include "ops/ragged/paged_head.h"
#include "ops/simd_math-inl.h"
#include "ops/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace {

constexpr FloatTag kFloats;
constexpr auto kPagedLanes = static_cast<int64_t>(hn::MaxLanes(kFloats));

// Keys side by side, at most a vector, and the destination of their scores.
struct KeyVector {
  const float* keys;
  float* scores;
  int64_t count;
};
// This many vectors are multiplied together, to have independent sums.
constexpr int kKeyVectors = 4;

// For each key the sum of q's products, first element first. `stride`: between elements.
template <int N>
void PagedProducts(const std::array<KeyVector, kKeyVectors>& vectors, const float* q,
                   int64_t head_size, int64_t stride) {
  const float* keys[N];
  FloatVec sums[N];
  bool whole = true;
  for (int v = 0; v < N; ++v) {
    keys[v] = vectors[v].keys;
    sums[v] = hn::Zero(kFloats);
    whole &= vectors[v].count == kPagedLanes;
  }
  if (whole) {
    for (int64_t i = 0; i < head_size; ++i) {
      const FloatVec factor = hn::Set(kFloats, q[i]);
      CHAIRLIFT_UNROLL
      for (int v = 0; v < N; ++v) {
        sums[v] = hn::MulAdd(factor, hn::LoadU(kFloats, keys[v] + i * stride), sums[v]);
      }
    }
  } else {
    for (int v = 0; v < N; ++v) {
      const auto count = static_cast<size_t>(vectors[v].count);
      for (int64_t i = 0; i < head_size; ++i) {
        const float* at = keys[v] + i * stride;
        const FloatVec x =
            vectors[v].count == kPagedLanes ? hn::LoadU(kFloats, at) : LoadPart(kFloats, at, count);
        sums[v] = hn::MulAdd(hn::Set(kFloats, q[i]), x, sums[v]);
      }
    }
  }
  for (int v = 0; v < N; ++v) hn::StoreU(sums[v], kFloats, vectors[v].scores);
}

// scores [count], for the keys from position `first` on.
void PagedScores(const PagedHead& s, const float* q, int64_t first, int64_t count, float* scores) {
  std::array<KeyVector, kKeyVectors> vectors;
  int used = 0;
  for (int64_t j = 0; j < count;) {
    const int64_t place = first + j, row = place % s.block_tokens;
    // A vector may read past the visible positions, but not past the block.
    const int64_t in_block = s.block_tokens - row;
    const int64_t seen = std::min(in_block, count - j);
    vectors[static_cast<size_t>(used++)] = {
        s.keys + s.blocks[place / s.block_tokens] * s.keys_block + row, scores + j,
        std::min(in_block, kPagedLanes)};
    j += std::min(seen, kPagedLanes);
    if (used == kKeyVectors) {
      PagedProducts<kKeyVectors>(vectors, q, s.head_size, s.block_tokens);
      used = 0;
    }
  }
  if (used == 1) PagedProducts<1>(vectors, q, s.head_size, s.block_tokens);
  if (used == 2) PagedProducts<2>(vectors, q, s.head_size, s.block_tokens);
  if (used == 3) PagedProducts<3>(vectors, q, s.head_size, s.block_tokens);
}

// sums [n] = Σ weights[j] · rows[j], for `count` rows of n floats each; added to `sums` if
// requested.
void SumPagedRows(const float* HWY_RESTRICT weights, const float* HWY_RESTRICT rows, int64_t count,
                  int64_t n, bool adds, float* HWY_RESTRICT sums) {
  for (int64_t i = 0; i < n; i += kPagedLanes) {
    const auto part = static_cast<size_t>(std::min(kPagedLanes, n - i));
    const bool whole = part == static_cast<size_t>(kPagedLanes);
    FloatVec sum = adds ? hn::LoadU(kFloats, sums + i) : hn::Zero(kFloats);
    const float* at = rows + i;
    for (int64_t j = 0; j < count; ++j, at += n) {
      const FloatVec x = whole ? hn::LoadU(kFloats, at) : LoadPart(kFloats, at, part);
      sum = hn::MulAdd(hn::Set(kFloats, weights[j]), x, sum);
    }
    hn::StoreU(sum, kFloats, sums + i);
  }
}

void AttendPagedHead(const PagedHead& s, float* scratch) {
  float* q = scratch;
  float* scores = q + PagedVectors(s.head_size);
  float* sums = scores + PagedVectors(kAttentionBlock);
  for (int64_t i = 0; i < s.queries; ++i) {
    for (int64_t d = 0; d < s.head_size; ++d) q[d] = s.q[i * s.q_row + d] * s.scale;
    float* out = s.out + i * s.out_row;
    const int64_t seen = s.causal ? s.cached + i + 1 : s.cached;
    RowState state;
    for (int64_t key = 0; key < seen; key += kAttentionBlock) {
      const int64_t keys = std::min(kAttentionBlock, seen - key);
      PagedScores(s, q, key, keys, scores);
      if (s.softcap != 0) Cap(s.softcap, keys, scores);
      if (s.bias != nullptr) {
        const float* bias = s.bias - (seen - 1) + key;
        for (int64_t j = 0; j < keys; ++j) scores[j] += bias[j];
      }
      const int64_t columns = (keys + kPagedLanes - 1) / kPagedLanes * kPagedLanes;
      std::fill(scores + keys, scores + columns, -std::numeric_limits<float>::infinity());
      const float shrink = Exponentials(scores, columns, state);
      for (int64_t j = 0; j < keys;) {
        const int64_t place = key + j, row = place % s.block_tokens;
        const int64_t count = std::min(s.block_tokens - row, keys - j);
        const float* values = s.values + s.blocks[place / s.block_tokens] * s.values_block;
        SumPagedRows(scores + j, values + row * s.value_size, count, s.value_size, j > 0, sums);
        j += count;
      }
      if (key == 0) {
        std::copy_n(sums, s.value_size, out);
        continue;
      }
      if (shrink != 1.0f) Multiply(out, s.value_size, shrink);
      for (int64_t c = 0; c < s.value_size; ++c) out[c] = sums[c] + out[c];
    }
    const float none = std::numeric_limits<float>::quiet_NaN();
    Multiply(out, s.value_size, state.sum > 0 ? 1.0f / state.sum : none);
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

int64_t PagedScratch(int64_t head_size, int64_t value_size) {
  return PagedVectors(head_size) + PagedVectors(kAttentionBlock) + PagedVectors(value_size);
}

void AttendPaged(const PagedHead& head, float* scratch) {
  HWY_DYNAMIC_DISPATCH(AttendPagedHead)(head, scratch);
}

}  // namespace chairlift
#endif  // HWY_ONCE
