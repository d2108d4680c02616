// Launches with one thread per element, in a loop over the grid.
#ifndef CHAIRLIFT_OPS_CUDA_LAUNCH_CUH_
#define CHAIRLIFT_OPS_CUDA_LAUNCH_CUH_

#include <algorithm>
#include <cstdint>

namespace chairlift::cuda {

inline constexpr int kThreads = 256;  // per block

// Blocks for `count` elements.
inline unsigned Blocks(int64_t count) {
  constexpr int64_t kMost = 1 << 20;
  return static_cast<unsigned>(std::min((count + kThreads - 1) / kThreads, kMost));
}

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_OPS_CUDA_LAUNCH_CUH_
