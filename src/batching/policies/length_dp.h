// The length_dp policy (TurboTransformers §5, Algorithm 2, put right): for models that can only run
// padded. Of all ways to cut the requests that wait, in order of length, into batches, the one that
// takes the least time by the cost table (length_plan.h).
//
// When it starts:
//   - hungry, where queue_delay is 0: as soon as a worker is idle;
//   - lazy, else: when max_batch_size rows wait, when the oldest request has waited queue_delay, or
//     when what it has waited and what all that waits is estimated to take exceed half of
//     latency_objective, where that is set. Who waits then waits no longer.
//
// Of a plan's batches, the one with the oldest request runs first: whoever has k requests before it
// waits for at most k batches, so that nobody starves. (The document leaves the order open.) The
// plan is kept until requests come or leave, and covers the oldest kMaxPlanned of them. It
// minimises the work, not the time until the last of several workers is done.
//
// Requests of one client share a batch only where the plan has those before them in it too.
#ifndef CHAIRLIFT_BATCHING_POLICIES_LENGTH_DP_H_
#define CHAIRLIFT_BATCHING_POLICIES_LENGTH_DP_H_

#include <memory>

#include "batching/policy.h"

namespace chairlift {

// Needs costs by length.
StatusOr<std::unique_ptr<Scheduler>> MakeLengthDpScheduler(const PolicyOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_LENGTH_DP_H_
