// Attention over packed sequences: launches of the kernels of ragged_attention.cu.
#ifndef CHAIRLIFT_OPS_CUDA_RAGGED_ATTENTION_CUH_
#define CHAIRLIFT_OPS_CUDA_RAGGED_ATTENTION_CUH_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "chairlift/tensor.h"

namespace chairlift::cuda {

// softmax(scale · q · kᵀ + bias) · v within each sequence, as in chairlift::RaggedAttention
// (ops/ragged/attention.cc). Pointers are device pointers; everything except the offsets has one
// element type.
struct RaggedAttentionArgs {
  const void* q = nullptr;  // [tokens, heads, columns]
  const void* k = nullptr;  // [tokens, kv_heads, columns]
  const void* v = nullptr;  // [tokens, kv_heads, values]
  void* out = nullptr;      // [tokens, heads, values]
  // [sequences + 1]. Offsets that do not ascend from 0 to at most `tokens` are clamped and reported
  // to `fault`, as is a sequence longer than its biases cover.
  const int64_t* offsets = nullptr;
  const void* bias = nullptr;  // [tokens]; [heads, points] if points > 0; or null
  int* fault = nullptr;
  int64_t tokens = 0, sequences = 0;
  int64_t heads = 0, kv_heads = 1;
  int64_t columns = 0, values = 0;
  int64_t points = 0;  // odd: entry points / 2 + j − i of a head is for its query i and key j
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: none
  bool causal = false;
  bool zeros_for_none = false;
};

// Allows the kernels for heads of this size the shared memory that they need on the current device.
// Call it once, before launches.
cudaError_t PrepareRaggedAttention(DType dtype, int64_t columns, int64_t values);

// float32, float16, bfloat16.
void LaunchRaggedAttention(DType dtype, const RaggedAttentionArgs& args, cudaStream_t stream);

// Blocks of a launch; must be below 2^31.
int64_t RaggedAttentionBlocks(const RaggedAttentionArgs& args);

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_OPS_CUDA_RAGGED_ATTENTION_CUH_
