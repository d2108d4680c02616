// The naive policy: whatever waits when a worker asks, in order of arrival, shares one batch,
// padded to the longest in it. What servers do that know nothing of lengths, for comparison with
// length_dp (TurboTransformers §6.3); where lengths vary much it is slower than no batching at all.
#ifndef CHAIRLIFT_BATCHING_POLICIES_NAIVE_H_
#define CHAIRLIFT_BATCHING_POLICIES_NAIVE_H_

#include <memory>

#include "batching/policy.h"

namespace chairlift {

StatusOr<std::unique_ptr<Scheduler>> MakeNaiveScheduler(const PolicyOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_NAIVE_H_
