// The padding of the last block of channel-blocked tensors (Layout::kChannelBlocked).
#ifndef CHAIRLIFT_OPS_LINEAR_FILL_H_
#define CHAIRLIFT_OPS_LINEAR_FILL_H_

#include <cstdint>

namespace chairlift {

// Zeroes lanes [channels, block) of `count` pixels of one block. Zero weights are not enough: an
// infinite or NaN input times zero is NaN.
void ClearFilledUp(float* pixels, int64_t count, int64_t channels, int64_t block);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_FILL_H_
