// Scaled dot-product attention for one head of one sequence, in blocks: softmax(scale·Q·Kᵀ +
// mask)·V without a matrix of queries by keys. Memory is in proportion to the length.
//
// Blocks of queries are combined with blocks of keys. When a later block raises the maximum of a
// row, its running maximum and sum are corrected (Milakov and Gimelshein, "Online normalizer
// calculation for softmax", 2018; Dao et al., "FlashAttention", 2022, §3.1).
#ifndef CHAIRLIFT_OPS_ATTENTION_ATTENTION_KERNEL_H_
#define CHAIRLIFT_OPS_ATTENTION_ATTENTION_KERNEL_H_

#include <cstddef>
#include <cstdint>

namespace chairlift {

// Keys per block: their scores for a tile of queries stay in the first-level cache.
inline constexpr int64_t kAttentionBlock = 256;

struct AttentionSteps;

// float32; strides in elements. Rows of Q, V and the output are contiguous.
struct AttentionHead {
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t head_size = 0;   // for Q and K
  int64_t value_size = 0;  // for V and the output
  const float* q = nullptr;
  int64_t q_row = 0;
  const float* k = nullptr;  // element (key, i) at key · k_row + i · k_column
  int64_t k_row = 0, k_column = 1;
  const float* v = nullptr;
  int64_t v_row = 0;
  float* out = nullptr;
  int64_t out_row = 0;
  float scale = 1.0f;
  // Added to the scaled product of (query, key), at query · mask_row + key · mask_column; or null.
  const float* mask = nullptr;
  int64_t mask_row = 0, mask_column = 1;
  const float* key_mask = nullptr;  // [keys]: added for every query, after `mask`; or null
  // A tanh limits the scaled products to ± this before the mask is added; 0: no limit.
  float softcap = 0.0f;
  // Query i attends only to keys i + first_seen to i + last_seen. Without bounds: to every key.
  static constexpr int64_t kUnbounded = int64_t{1} << 60;
  int64_t first_seen = -kUnbounded, last_seen = kUnbounded;
  // The result for a query that attends to no key (its row is −∞): zeros, or NaN as the formula
  // gives.
  bool zeros_for_none = false;
  // The same for a query whose weights are NaN for any reason: a score that is NaN or +∞.
  bool zeros_for_nan = false;
  // What scores and weights are rounded to in between (attention_steps.h); null: nothing.
  const AttentionSteps* steps = nullptr;
};

// Bytes of K and V as packed for Attend().
size_t PackedHeadBytes(int64_t keys, int64_t head_size, int64_t value_size);
// Bytes of scratch memory for each concurrent caller of Attend().
size_t AttendScratchBytes(int64_t head_size);

// Packs K and V to `packed`. Both `packed` and `scratch` must be 64-byte aligned.
void PackHead(const AttentionHead& head, void* packed);
// Computes queries [first, last). Calls for different queries may run concurrently.
void Attend(const AttentionHead& head, int64_t first, int64_t last, const void* packed,
            void* scratch);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_ATTENTION_ATTENTION_KERNEL_H_
