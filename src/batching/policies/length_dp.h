// The length_dp policy (TurboTransformers §5, Algorithm 2, corrected): for models that can only run
// padded. It sorts the waiting requests by length and divides them into batches so that the total
// time according to the cost table is minimal (length_plan.h).
//
// When a batch starts:
//   - hungry, if queue_delay is 0: as soon as a worker is idle;
//   - lazy, otherwise: when max_batch_size rows wait; when the oldest request has waited
//     queue_delay; or, if latency_objective is set, when the wait of the oldest plus the estimated
//     time of everything that waits exceeds half of it. All requests that wait at that time are
//     then released.
//
// The batch with the oldest request of a plan runs first: a request with k requests before it waits
// for at most k batches, so nothing starves. (The paper leaves the order open.) A plan is kept
// until requests come or leave, and covers the oldest kMaxPlanned requests. It minimises the total
// work, not the time until the last of several workers is done.
//
// Requests of one client share a batch only if the earlier ones are in it too.
#ifndef CHAIRLIFT_BATCHING_POLICIES_LENGTH_DP_H_
#define CHAIRLIFT_BATCHING_POLICIES_LENGTH_DP_H_

#include <memory>

#include "batching/policy.h"

namespace chairlift {

// Needs costs by length.
StatusOr<std::unique_ptr<Scheduler>> MakeLengthDpScheduler(const PolicyOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_LENGTH_DP_H_
