// The kernel of attention_kernel.h, one build per instruction set.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/attention/attention_kernel.h"
#include "ops/linear/packed_gemm.h"
#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/attention_kernel_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/attention/online_softmax-inl.h"
#include "ops/linear/gemm_tile-inl.h"
#include "ops/simd_math-inl.h"

#ifndef CHAIRLIFT_ATTENTION_BLOCK
#define CHAIRLIFT_ATTENTION_BLOCK
namespace chairlift {
namespace {

// Avoids that rows of scores share a cache set.
constexpr int64_t kScoreStride = kAttentionBlock + 16;
constexpr int64_t kMostRows = 16;

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
// For scaled queries.
int64_t QueryStride(int64_t head_size) { return RoundUp(head_size, 16) + 16; }

}  // namespace
}  // namespace chairlift
#endif

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace {

// Adds element i · column of the mask to score i.
void AddMask(const float* mask, int64_t column, int64_t keys, float* scores) {
  int64_t i = 0;
  if (column == 1) {
    for (; i + kLanes <= keys; i += kLanes) {
      hn::StoreU(hn::Add(hn::LoadU(kD, scores + i), hn::LoadU(kD, mask + i)), kD, scores + i);
    }
  }
  for (; i < keys; ++i) scores[i] += mask[i * column];
}

// Hides those of keys [key, key + keys) that `query` does not attend to.
void Hide(const AttentionHead& head, int64_t query, int64_t key, int64_t keys, float* scores) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const int64_t first = std::clamp<int64_t>(query + head.first_seen - key, 0, keys);
  const int64_t end = std::clamp<int64_t>(query + head.last_seen + 1 - key, 0, keys);
  std::fill(scores, scores + first, kNone);
  std::fill(scores + end, scores + keys, kNone);
}

// out [rows, value_size] (+)= weights [rows, keys] · V's block.
void AddValues(const AttentionHead& head, const float* weights, const float* packed, int64_t keys,
               int64_t all_keys, int rows, bool accumulate, float* out) {
  const PanelFunction run = kPanelTable[rows - 1];
  for (int64_t column = 0; column < head.value_size; column += kGemmPanel) {
    const float* panel = packed + column / kGemmPanel * all_keys * kGemmPanel;
    const int64_t columns = std::min(kGemmPanel, head.value_size - column);
    if (columns == kGemmPanel) {
      run(weights, kScoreStride, panel, out + column, head.out_row, keys, accumulate, nullptr, {});
      continue;
    }
    float edge[kMaxRows * kGemmPanel];
    run(weights, kScoreStride, panel, edge, kGemmPanel, keys, false, nullptr, {});
    for (int r = 0; r < rows; ++r) {
      float* to = out + r * head.out_row + column;
      for (int64_t c = 0; c < columns; ++c) {
        to[c] = edge[r * kGemmPanel + c] + (accumulate ? to[c] : 0.0f);
      }
    }
  }
}

void QueryTile(const AttentionHead& head, int64_t first, int rows, const float* packed_k,
               const float* packed_v, float* scratch) {
  const int64_t query_stride = QueryStride(head.head_size);
  float* queries = scratch;
  float* scores = scratch + kMostRows * query_stride;
  for (int r = 0; r < rows; ++r) {
    const float* q = head.q + (first + r) * head.q_row;
    float* to = queries + r * query_stride;
    for (int64_t i = 0; i < head.head_size; ++i) to[i] = q[i] * head.scale;
  }
  float* out = head.out + first * head.out_row;
  const PanelFunction run = kPanelTable[rows - 1];
  RowState states[kMaxRows];
  // Blocks to which no query of the tile attends are skipped.
  const int64_t seen_from = std::clamp<int64_t>(first + head.first_seen, 0, head.keys);
  const int64_t seen_to = std::clamp<int64_t>(first + rows + head.last_seen, 0, head.keys);
  const int64_t first_block = seen_from / kAttentionBlock * kAttentionBlock;
  if (first_block >= seen_to) {
    for (int r = 0; r < rows; ++r) std::fill_n(out + r * head.out_row, head.value_size, 0.0f);
  }
  for (int64_t key = first_block; key < seen_to; key += kAttentionBlock) {
    const int64_t keys = std::min(kAttentionBlock, head.keys - key);
    const int64_t columns = RoundUp(keys, kGemmPanel);
    for (int64_t c = 0; c < columns; c += kGemmPanel) {
      run(queries, query_stride, packed_k + (key + c) * head.head_size, scores + c, kScoreStride,
          head.head_size, false, nullptr, {});
    }
    for (int r = 0; r < rows; ++r) {
      float* row = scores + r * kScoreStride;
      if (head.softcap != 0) Cap(head.softcap, columns, row);
      if (head.mask != nullptr) {
        AddMask(head.mask + (first + r) * head.mask_row + key * head.mask_column, head.mask_column,
                keys, row);
      }
      if (head.key_mask != nullptr) AddMask(head.key_mask + key, 1, keys, row);
      Hide(head, first + r, key, keys, row);
      std::fill(row + keys, row + columns, -std::numeric_limits<float>::infinity());
      const float shrink = Exponentials(row, columns, states[r]);
      if (key > first_block && shrink != 1.0f)
        Multiply(out + r * head.out_row, head.value_size, shrink);
    }
    AddValues(head, scores, packed_v + key * kGemmPanel, keys, head.keys, rows, key > first_block,
              out);
  }
  for (int r = 0; r < rows; ++r) {
    const float none = head.zeros_for_none ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    const float sum = states[r].sum;
    if (head.zeros_for_nan && !(sum > 0)) {
      std::fill_n(out + r * head.out_row, head.value_size, 0.0f);
      continue;
    }
    Multiply(out + r * head.out_row, head.value_size, sum > 0 ? 1.0f / sum : none);
  }
}

void AttendQueries(const AttentionHead& head, int64_t first, int64_t last, const float* packed,
                   float* scratch) {
  const float* packed_v = packed + RoundUp(head.keys, kGemmPanel) * head.head_size;
  const int64_t tiles = (last - first + kMaxRows - 1) / kMaxRows;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t from = first + (last - first) * tile / tiles;
    const int64_t to = first + (last - first) * (tile + 1) / tiles;
    QueryTile(head, from, static_cast<int>(to - from), packed, packed_v, scratch);
  }
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(AttendQueries);

size_t PackedHeadBytes(int64_t keys, int64_t head_size, int64_t value_size) {
  return static_cast<size_t>(PackedGemmSize(head_size, keys) + PackedGemmSize(keys, value_size)) *
         sizeof(float);
}

size_t AttendScratchBytes(int64_t head_size) {
  return static_cast<size_t>(kMostRows * (QueryStride(head_size) + kScoreStride)) * sizeof(float);
}

void PackHead(const AttentionHead& head, void* packed) {
  auto* to = static_cast<float*>(packed);
  PackGemmPanels(head.k, head.k_column, head.k_row, head.head_size, head.keys, 0,
                 GemmPanels(head.keys), 1.0f, to);
  PackGemmPanels(head.v, head.v_row, 1, head.keys, head.value_size, 0, GemmPanels(head.value_size),
                 1.0f, to + PackedGemmSize(head.head_size, head.keys));
}

void Attend(const AttentionHead& head, int64_t first, int64_t last, const void* packed,
            void* scratch) {
  HWY_DYNAMIC_DISPATCH(AttendQueries)
  (head, first, last, static_cast<const float*>(packed), static_cast<float*>(scratch));
}

}  // namespace chairlift
#endif  // HWY_ONCE
