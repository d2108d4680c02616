// The window policy (Clipper's and Triton's dynamic batching): ready nodes of one type queue up,
// and a task is formed of the oldest ones
//   - at once, where they reach max_batch_size or the next one would exceed it;
//   - at once, where some number of the oldest has a preferred size (the largest such number);
//   - when the oldest has waited queue_delay; at once where that is 0.
// Requests take turns: a task is formed of one node of each, in the order they became ready, then
// of a second one of each, and so on. So a request of many nodes does not hold up those that come
// later. Among types that could form a task, the one whose first node's turn comes first, or that
// has waited longest, goes first, so that no type starves.
//
// Use it for models that run as a whole. It holds back a newcomer of a recurrent model until the
// batch before it has ended; that is what the cellular policy is for.
#ifndef CHAIRLIFT_BATCHING_POLICIES_WINDOW_H_
#define CHAIRLIFT_BATCHING_POLICIES_WINDOW_H_

#include <memory>

#include "batching/policy.h"

namespace chairlift {

StatusOr<std::unique_ptr<Scheduler>> MakeWindowScheduler(const PolicyOptions& options);
// No batching: every node runs alone, in order of readiness. The window of one row, which nobody is
// held back for; all options are ignored.
StatusOr<std::unique_ptr<Scheduler>> MakeNoneScheduler(const PolicyOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_WINDOW_H_
