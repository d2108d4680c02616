// What fills up the last block of channel-blocked tensors (Layout::kChannelBlocked).
#ifndef CHAIRLIFT_OPS_LINEAR_FILL_H_
#define CHAIRLIFT_OPS_LINEAR_FILL_H_

#include <cstdint>

namespace chairlift {

// Zeros lanes [channels, block) of `count` pixels of one block. Weights of zero do not keep them
// so: an input that is infinite, or no number, makes a NaN of them.
void ClearFilledUp(float* pixels, int64_t count, int64_t channels, int64_t block);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_FILL_H_
