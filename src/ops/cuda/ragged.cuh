// Packed sequences on the device: reading untrusted offsets, and launches of the kernels of
// ragged.cu.
#ifndef CHAIRLIFT_OPS_CUDA_RAGGED_CUH_
#define CHAIRLIFT_OPS_CUDA_RAGGED_CUH_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "chairlift/tensor.h"

namespace chairlift::cuda {

// Offsets [count + 1] of `count` sequences in `tokens` tokens. Kernels clamp them to [0, tokens].
// If they do not ascend from 0 to at most `tokens`, kernels report that to `fault`.
struct Sequences {
  const int64_t* offsets = nullptr;
  int64_t count = 0;
  int64_t tokens = 0;
  int* fault = nullptr;
};

enum class RaggedFold { kSum, kMean, kMax, kMin };

// y [count, columns] from x [tokens, columns]; zeros for empty sequences. Floats, int32, int64.
void LaunchRaggedReduce(DType dtype, RaggedFold fold, const Sequences& sequences, int64_t columns,
                        const void* x, void* y, cudaStream_t stream);
// y [count, row_bytes]: row `index` of each sequence of x [tokens, row_bytes], counted from its end
// if negative; zeros for empty sequences. A sequence without such a row is reported to `fault`.
void LaunchRaggedToken(int64_t index, const Sequences& sequences, size_t row_bytes, const void* x,
                       void* y, cudaStream_t stream);
// y [tokens, row_bytes]: the row of x [count, row_bytes] of each token's sequence; zeros after the
// last.
void LaunchRaggedSpread(const Sequences& sequences, size_t row_bytes, const void* x, void* y,
                        cudaStream_t stream);
// Running sums along each sequence of [tokens, columns]; zeros after the last.
void LaunchRaggedCumSum(DType dtype, const Sequences& sequences, int64_t columns, bool exclusive,
                        bool reverse, const void* x, void* y, cudaStream_t stream);

#ifdef __CUDACC__

__device__ __forceinline__ int64_t OffsetAt(const int64_t* offsets, int64_t s, int64_t tokens) {
  const int64_t offset = offsets[s];
  return offset < 0 ? 0 : offset > tokens ? tokens : offset;
}

// Reports wrong offsets; called by the threads of one block. Faults are DataFault values.
__device__ __forceinline__ void CheckOffsets(const int64_t* offsets, int64_t count, int64_t tokens,
                                             int* fault, int code) {
  bool wrong = false;
  for (int64_t s = threadIdx.x; s <= count; s += blockDim.x) {
    wrong |= s == 0 ? offsets[0] != 0 : offsets[s] < offsets[s - 1];
    wrong |= s == count && offsets[s] > tokens;
  }
  if (wrong) atomicMax(fault, code);
}

#endif  // __CUDACC__

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_OPS_CUDA_RAGGED_CUH_
