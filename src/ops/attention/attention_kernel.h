// Scaled dot-product attention of one head of one sequence, in blocks: softmax(scale·Q·Kᵀ + mask)·V
// without a matrix of queries by keys. A sequence of any length costs memory in proportion to it.
//
// Blocks of queries meet blocks of keys; the running maximum and sum of each row are corrected when
// a later block raises the maximum (Milakov and Gimelshein, "Online normalizer calculation for
// softmax", 2018; Dao et al., "FlashAttention", 2022, §3.1).
#ifndef CHAIRLIFT_OPS_ATTENTION_ATTENTION_KERNEL_H_
#define CHAIRLIFT_OPS_ATTENTION_ATTENTION_KERNEL_H_

#include <cstddef>
#include <cstdint>

namespace chairlift {

// Keys to a block: their scores of a tile of queries stay in the first-level cache.
inline constexpr int64_t kAttentionBlock = 256;

// float32; strides in elements. Rows of Q, V and the output are runs.
struct AttentionHead {
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t head_size = 0;   // of Q and K
  int64_t value_size = 0;  // of V and the output
  const float* q = nullptr;
  int64_t q_row = 0;
  const float* k = nullptr;  // element (key, i) at key · k_row + i · k_column
  int64_t k_row = 0, k_column = 1;
  const float* v = nullptr;
  int64_t v_row = 0;
  float* out = nullptr;
  int64_t out_row = 0;
  float scale = 1.0f;
  // Added to the scaled product of (query, key): at query · mask_row + key · mask_column; or null.
  const float* mask = nullptr;
  int64_t mask_row = 0, mask_column = 1;
  // At most so far from 0 are the scaled products held, by a tanh, before the mask; 0: not held.
  float softcap = 0.0f;
  // Query i sees the keys from i + first_seen to i + last_seen alone. Without bounds: every key.
  static constexpr int64_t kUnbounded = int64_t{1} << 60;
  int64_t first_seen = -kUnbounded, last_seen = kUnbounded;
  // What a query gets that sees no key at all (its row is −∞ throughout): NaN as the formula says,
  // or zeros.
  bool zeros_for_none = false;
};

// Of K and V as Attend() wants them.
size_t PackedHeadBytes(int64_t keys, int64_t head_size, int64_t value_size);
// Of what Attend() needs beside them; one for each caller at a time.
size_t AttendScratchBytes(int64_t head_size);

// Packs K and V to `packed`, which like `scratch` is to be 64-byte aligned.
void PackHead(const AttentionHead& head, void* packed);
// Queries [first, last). Calls for different queries may run at once.
void Attend(const AttentionHead& head, int64_t first, int64_t last, const void* packed,
            void* scratch);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_ATTENTION_ATTENTION_KERNEL_H_
