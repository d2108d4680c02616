// Pooling on the device: a thread a window.
#ifndef CHAIRLIFT_OPS_CUDA_POOLING_CUH_
#define CHAIRLIFT_OPS_CUDA_POOLING_CUH_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "chairlift/tensor.h"

namespace chairlift::cuda {

enum class Pooling : uint8_t { kMax, kAverage, kAverageWithPadding, kLp };

// Three spatial axes, shorter inputs have leading ones of 1. `taps`, on the device: for each output
// index of each axis in turn the first input index, how many there are, `dilation` apart, and how
// many with padding.
struct PoolCall {
  Pooling kind;
  int64_t p;
  int64_t planes;
  int64_t in[3], out[3], dilation[3];
  const int64_t* taps;
  bool column_major;
};
// `places`: of kMax the element that each output is, in the whole input; may be null. False for
// types that it does not pool.
bool LaunchPool(DType dtype, const PoolCall& call, const void* x, void* y, int64_t* places,
                cudaStream_t stream);

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_OPS_CUDA_POOLING_CUH_
