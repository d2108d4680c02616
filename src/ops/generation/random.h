// The seeds of a request, as chairlift::Random reads them.
#ifndef CHAIRLIFT_OPS_GENERATION_RANDOM_H_
#define CHAIRLIFT_OPS_GENERATION_RANDOM_H_

#include <cstdint>

#include "chairlift/tensor.h"

namespace chairlift {

// Columns of [rows, columns] int64, for each row of a request: the seed, the row's number in the
// request, and whether the request gives a seed.
inline constexpr int64_t kSeedColumns = 3;

// `given`: false if the request gives no seed, so that seeds of nodes count instead.
Tensor SeedsOf(int64_t seed, bool given, int64_t rows);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_GENERATION_RANDOM_H_
