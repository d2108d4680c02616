// Folding elements on the device.
#ifndef CHAIRLIFT_OPS_CUDA_REDUCTION_CUH_
#define CHAIRLIFT_OPS_CUDA_REDUCTION_CUH_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "chairlift/tensor.h"

namespace chairlift::cuda {

enum class Fold : uint8_t {
  kSum,
  kMean,
  kMax,
  kMin,
  kProd,
  kL1,
  kL2,
  kSumSquare,
  kLogSum,
  kLogSumExp,
};

inline constexpr int kMaxFoldDims = 8;

// Output o (in [0, kept)) folds `folded` elements; the element of an index is at the sum of its
// coordinates times the strides.
struct FoldLoops {
  int64_t kept, folded;
  int num_kept, num_folded;
  int64_t kept_dims[kMaxFoldDims], kept_strides[kMaxFoldDims];
  int64_t folded_dims[kMaxFoldDims], folded_strides[kMaxFoldDims];
};

// Floats in float32 (float64 in float64), integers in 64 bits. False for unsupported types.
bool LaunchFold(Fold fold, DType type, const FoldLoops& loops, const void* in, void* out,
                cudaStream_t stream);

// The index (int64) of the largest or smallest of `size` elements, `inner` apart, for each of outer
// · inner outputs. Ties give the first or the last; NaN exceeds everything.
bool LaunchArgFold(bool largest, bool last, DType type, int64_t outer, int64_t size, int64_t inner,
                   const void* in, int64_t* out, cudaStream_t stream);

// Running sums along the middle axis of outer × size × inner elements. False for unsupported types.
bool LaunchCumSum(DType type, bool exclusive, bool reverse, int64_t outer, int64_t size,
                  int64_t inner, const void* in, void* out, cudaStream_t stream);

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_OPS_CUDA_REDUCTION_CUH_
