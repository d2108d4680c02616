// The steps around a convolution on the device.
#ifndef CHAIRLIFT_OPS_CUDA_CONVOLUTION_CUH_
#define CHAIRLIFT_OPS_CUDA_CONVOLUTION_CUH_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "chairlift/tensor.h"
#include "ops/cuda/device_activation.h"

namespace chairlift::cuda {

// Images with up to three spatial axes; missing ones come first and are 1.
struct ImageMove {
  int64_t batch, channels;
  int64_t in[3], out[3];
  int64_t begin[3];  // out[i] is in[i − begin], or zero outside
  bool scale_per_image;
};
// out = in moved, times scale[channel] or scale[image, channel] if not null.
void LaunchMoveImages(DType dtype, const ImageMove& move, const void* in, const void* scale,
                      void* out, cudaStream_t stream);

// y = f(y + bias[channel] + residual) for y [batch, channels, spatial]; either may be null.
void LaunchFinishConvolution(DType dtype, int64_t batch, int64_t channels, int64_t spatial,
                             const void* bias, const void* residual,
                             const DeviceActivation& activation, void* y, cudaStream_t stream);

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_OPS_CUDA_CONVOLUTION_CUH_
