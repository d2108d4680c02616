// Copies rows at arbitrary device addresses. The list of addresses is in host memory and is read
// before these functions return.
#ifndef CHAIRLIFT_DEVICE_CUDA_ROWS_CUH_
#define CHAIRLIFT_DEVICE_CUDA_ROWS_CUH_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/device.h"

namespace chairlift::cuda {

// Like Stream::Gather() and Stream::CopyRows(), but with at least one row to copy.
void LaunchGather(void* to, const std::byte* const* rows, int64_t count, size_t row_bytes,
                  cudaStream_t stream);
void LaunchCopyRows(std::span<const Stream::RowCopy> copies, size_t row_bytes, cudaStream_t stream);

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_DEVICE_CUDA_ROWS_CUH_
