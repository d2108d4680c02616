// Continuous batching of requests that generate: at every step all that are under way ride
// together, one token each, and prompts ride beside them, in pieces (iteration-level scheduling:
// Yu et al., "Orca", OSDI 2022; pieces of prompts beside steps: Agrawal et al., "Sarathi-Serve",
// OSDI 2024, §4.2).
//
// A request's graph is a node for each piece of its prompt, none of which waits for another, and
// one of one row that it grows by for each token. Rows are tokens. Nodes of one request are given
// out in the order in which they were added, several of them perhaps in one task.
//
// One task is in flight at a time, for all workers together: a second one would read all weights
// again for a part of the requests. It has, in this order:
//   1. steps: of those that are ready the ones that waited longest, `max_batch_size` rows at most;
//   2. pieces of prompts, of the requests that arrived first: where there are steps, one piece; and
//      where there are none, as many as fit into `max_batch_size`, one at the least.
// So nobody's next token waits for more than one piece of a prompt, and a prompt that has been
// admitted has a piece in every task until those before it have run.
//
// Pieces of another type than steps (what an encoder computes, which is one node then) ride apart:
// while there are both, tasks of steps and of pieces, as many as fit, take turns, steps first. A
// token waits for `max_batch_size` rows of such pieces at the most, or for one piece that is
// larger.
//
// Memory. A request may grow to CellGraph::state() units of state, which it holds from its start
// until it leaves. It starts when all that have started and it fit into `state_capacity`, in order
// of arrival: nobody passes one that does not fit yet, so a large request is not starved. One that
// does not fit alone starts when nobody else is under way. With capacity 0 there is no limit.
//
// Requests may have deadlines and may be cancelled: they leave where their task ends.
#ifndef CHAIRLIFT_BATCHING_POLICIES_CONTINUOUS_H_
#define CHAIRLIFT_BATCHING_POLICIES_CONTINUOUS_H_

#include <memory>

#include "batching/policy.h"

namespace chairlift {

StatusOr<std::unique_ptr<Scheduler>> MakeContinuousScheduler(const PolicyOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_CONTINUOUS_H_
