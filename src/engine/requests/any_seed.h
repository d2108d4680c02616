// A seed for a request that gives none.
#ifndef CHAIRLIFT_ENGINE_REQUESTS_ANY_SEED_H_
#define CHAIRLIFT_ENGINE_REQUESTS_ANY_SEED_H_

#include <cstdint>

namespace chairlift {

// Returns a different number at each call. Thread-safe.
int64_t AnySeed();

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUESTS_ANY_SEED_H_
