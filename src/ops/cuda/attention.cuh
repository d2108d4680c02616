// Attention for heads with arbitrary strides and any mask: one warp per query.
#ifndef CHAIRLIFT_OPS_CUDA_ATTENTION_CUH_
#define CHAIRLIFT_OPS_CUDA_ATTENTION_CUH_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "chairlift/tensor.h"

namespace chairlift::cuda {

// chairlift::AttentionShapes without its construction; strides by batch, head, row and column.
struct AttentionCall {
  int64_t batch, heads, sharing, queries, keys, head_size, value_size;
  int64_t q[4], k[4], v[4], y[4], mask[4];
  int64_t mask_first;
  int64_t first_seen, last_seen;
  float scale, softcap;
  bool zeros_for_none;
};
inline constexpr int64_t kMaxAttentionColumns = 512;  // of values

// All of one type, float32 or a 16-bit float; the mask may be null.
void LaunchAttention(DType dtype, const AttentionCall& call, const void* q, const void* k,
                     const void* v, const void* mask, void* y, cudaStream_t stream);

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_OPS_CUDA_ATTENTION_CUH_
