// Pooling on the device: one thread per window.
#ifndef CHAIRLIFT_OPS_CUDA_POOLING_CUH_
#define CHAIRLIFT_OPS_CUDA_POOLING_CUH_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "chairlift/tensor.h"

namespace chairlift::cuda {

enum class Pooling : uint8_t { kMax, kAverage, kAverageWithPadding, kLp };

// Three spatial axes; leading ones are 1 if the input has fewer. `taps`, on the device: for each
// output index of each axis, the first input index, the number of taps (`dilation` apart), and the
// number including padding.
struct PoolCall {
  Pooling kind;
  int64_t p;
  int64_t planes;
  int64_t in[3], out[3], dilation[3];
  const int64_t* taps;
  bool column_major;
};
// `places` may be null; for kMax it receives the index in the whole input of each output's element.
// False for unsupported types.
bool LaunchPool(DType dtype, const PoolCall& call, const void* x, void* y, int64_t* places,
                cudaStream_t stream);

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_OPS_CUDA_POOLING_CUH_
