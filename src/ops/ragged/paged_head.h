// Attention of a few queries of one head over keys and values in blocks, read where they are.
#ifndef CHAIRLIFT_OPS_RAGGED_PAGED_HEAD_H_
#define CHAIRLIFT_OPS_RAGGED_PAGED_HEAD_H_

#include <cstdint>

namespace chairlift {

// float32. The key at place p is the run of head_size elements at
// keys + blocks[p / block_tokens] · keys_block + (p % block_tokens) · head_size; values likewise.
struct PagedHead {
  const float* q = nullptr;  // query i at q + i · q_row
  float* out = nullptr;
  int64_t queries = 0;
  int64_t q_row = 0, out_row = 0;
  int64_t head_size = 0, value_size = 0;
  // Query i sees the places from 0 to cached + i; if not causal, the `cached` first ones.
  int64_t cached = 0;
  bool causal = true;
  const int64_t* blocks = nullptr;
  int64_t block_tokens = 0;
  const float* keys = nullptr;
  const float* values = nullptr;
  int64_t keys_block = 0, values_block = 0;  // elements from one block to the next
  float scale = 1.0f;
  // Added to the score of a key d places before the query: bias[−d]; null: nothing. Of causal
  // attention only.
  const float* bias = nullptr;
};

// Each query sees one place at the least. `scores`: room for cached + queries floats; if not
// causal, for `cached`.
void AttendPaged(const PagedHead& head, float* scores);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_RAGGED_PAGED_HEAD_H_
