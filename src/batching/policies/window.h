// The window policy (dynamic batching as in Clipper and Triton). Ready nodes of one type are
// queued, and a task of the oldest ones is formed
//   - at once, if they reach max_batch_size or the next one would exceed it;
//   - at once, if some number of the oldest has a preferred size (the largest such number);
//   - when the oldest has waited queue_delay; at once if that is 0.
// Requests take turns: a task is formed of one node of each, in the order they became ready, then
// of a second node of each, and so on. So a request of many nodes does not hold up later ones.
// Among types that could form a task, the one whose first node's turn comes first, or that has
// waited longest, goes first, so no type starves.
//
// Use it for models that run as a whole. For a recurrent model it holds back new requests until the
// previous batch has ended; use the cellular policy there.
#ifndef CHAIRLIFT_BATCHING_POLICIES_WINDOW_H_
#define CHAIRLIFT_BATCHING_POLICIES_WINDOW_H_

#include <memory>

#include "batching/policy.h"

namespace chairlift {

StatusOr<std::unique_ptr<Scheduler>> MakeWindowScheduler(const PolicyOptions& options);
// No batching: every node runs alone, in order of readiness. Equals a window of one row without
// delay; all options are ignored.
StatusOr<std::unique_ptr<Scheduler>> MakeNoneScheduler(const PolicyOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_WINDOW_H_
