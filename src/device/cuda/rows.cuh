// Rows that lie anywhere on the device, copied by their addresses, which are the host's and read
// before these return.
#ifndef CHAIRLIFT_DEVICE_CUDA_ROWS_CUH_
#define CHAIRLIFT_DEVICE_CUDA_ROWS_CUH_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/device.h"

namespace chairlift::cuda {

// As Stream::Gather() and Stream::CopyRows(); neither is given nothing to do.
void LaunchGather(void* to, const std::byte* const* rows, int64_t count, size_t row_bytes,
                  cudaStream_t stream);
void LaunchCopyRows(std::span<const Stream::RowCopy> copies, size_t row_bytes, cudaStream_t stream);

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_DEVICE_CUDA_ROWS_CUH_
