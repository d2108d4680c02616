// Moving elements on the device.
#ifndef CHAIRLIFT_OPS_CUDA_MOVEMENT_CUH_
#define CHAIRLIFT_OPS_CUDA_MOVEMENT_CUH_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace chairlift::cuda {

inline constexpr int kMostMoved = 16;   // inputs of one launch
inline constexpr int kInputShift = 40;  // a place is input << kInputShift | element

struct MovedInputs {
  const void* data[kMostMoved];
};
// out[i] = inputs.data[places[i] >> kInputShift][places[i] & …], for elements of `bytes`; `fill` if
// places[i] is negative.
void LaunchMove(const MovedInputs& inputs, const int64_t* places, int64_t count, size_t bytes,
                uint64_t fill, void* out, cudaStream_t stream);

// out[b, r, c] = in[b, c, r] for elements of `bytes`.
void LaunchTranspose(const void* in, int64_t batch, int64_t rows, int64_t columns, size_t bytes,
                     void* out, cudaStream_t stream);

// out[o, i, :] = in[o, index of i, :], with indices in [−size, size). If one is out of range,
// *fault is set and the first entry is used.
void LaunchGather(const void* in, const void* indices, bool wide_indices, int64_t outer,
                  int64_t size, int64_t count, int64_t inner_bytes, void* out, int* fault,
                  cudaStream_t stream);

inline constexpr int kMaxGatherDims = 8;
// out[i] = in[i with `axis` replaced by indices[i]], for i in `dims`; out of range as above.
struct GatherElementsCall {
  int num_dims, axis;
  int64_t count, size;  // of the output; of the input along the axis
  int64_t dims[kMaxGatherDims], strides[kMaxGatherDims];
};
void LaunchGatherElements(const GatherElementsCall& call, const void* in, const void* indices,
                          bool wide_indices, size_t bytes, void* out, int* fault,
                          cudaStream_t stream);

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_OPS_CUDA_MOVEMENT_CUH_
