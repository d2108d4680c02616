// Attention of a few queries of one head over keys and values in blocks, read in place.
#ifndef CHAIRLIFT_OPS_RAGGED_PAGED_HEAD_H_
#define CHAIRLIFT_OPS_RAGGED_PAGED_HEAD_H_

#include <cstdint>

namespace chairlift {

// float32. Element i of the key at position p is at
//   keys + blocks[p / block_tokens] · keys_block + i · block_tokens + p % block_tokens,
// so that the keys of a block are side by side. The value at position p is the run of value_size
// elements at values + blocks[p / block_tokens] · values_block + (p % block_tokens) · value_size.
struct PagedHead {
  const float* q = nullptr;  // query i at q + i · q_row
  float* out = nullptr;
  int64_t queries = 0;
  int64_t q_row = 0, out_row = 0;
  int64_t head_size = 0, value_size = 0;
  // Query i attends to positions 0 to cached + i; if not causal, to the first `cached` ones.
  int64_t cached = 0;
  bool causal = true;
  const int64_t* blocks = nullptr;
  int64_t block_tokens = 0;
  const float* keys = nullptr;
  const float* values = nullptr;
  int64_t keys_block = 0, values_block = 0;  // elements from one block to the next
  float scale = 1.0f;
  float softcap = 0.0f;  // limits scores by a tanh; 0: none
  // Added to the score of a key d positions before the query: bias[−d]; null: nothing. Only for
  // causal attention.
  const float* bias = nullptr;
};

// The floats to allocate for n floats: whole vectors, plus one vector that stores may touch.
inline int64_t PagedVectors(int64_t n) { return (n + 31) / 16 * 16; }
// Scratch memory of AttendPaged(), in floats.
int64_t PagedScratch(int64_t head_size, int64_t value_size);

// Each query must attend to at least one position. Sums are added in the same order as in Attend()
// (ops/attention/attention_kernel.h) with five queries or more. So both give bit-identical answers,
// whatever other queries there are.
void AttendPaged(const PagedHead& head, float* scratch);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_RAGGED_PAGED_HEAD_H_
