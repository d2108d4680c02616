// Continuous batching of requests that generate. Every step runs one token of each running request,
// together with parts of prompts (iteration-level scheduling: Yu et al., "Orca", OSDI 2022; parts
// of prompts beside steps: Agrawal et al., "Sarathi-Serve", OSDI 2024, §4.2).
//
// A request's graph is one divisible node, its prompt. It then grows by one node at a time: the
// rest of the prompt, or a step. Rows are tokens.
//
// One task runs at a time, for all workers together: a second task would read all weights again for
// a part of the requests. A task contains, in this order:
//   1. Steps: the ready ones that waited longest, at most `max_batch_size` rows.
//   2. Parts of prompts, of the earliest requests. Without steps, as many tokens as fit into
//      `max_batch_size`. With steps, as many tokens as keep the task's cost within kSlowdown times
//      that of its steps alone, or kSlowdownForSeveral times if several requests wait for their
//      prompts, but at least one token. If costs are unknown, kUnknownPiece tokens. So the next
//      token of a request waits little longer than one step, and prompts get at least a third of
//      the time: the first request that waits for a part of its prompt has a part in every task.
//
// Parts of another type than steps (an encoder, which is not divisible) run separately. While there
// are both, tasks of steps and tasks of as many parts as fit alternate, steps first. A token then
// waits for at most `max_batch_size` rows of such parts, or for one larger part.
//
// Memory. A request may grow to CellGraph::state() units of state. It starts when `state_capacity`
// has room for it beside the running requests, in order of arrival. No request passes one that does
// not fit yet, so a large request does not starve. A request that does not fit alone starts when
// nothing else runs. Capacity 0 means no limit.
//
// A request holds all of its units from its start. If CellGraph::state_rows() is set, it instead
// holds what its prompt needs, and one more whenever its rows need it. It starts only if one unit
// is left for each request that may grow. If no unit is left for a step, the youngest request that
// may grow is preempted (NodeRef::set_back): its units go to older requests, it waits at its place
// in order of arrival, and it computes its prompt and its answer so far again, in parts. The oldest
// is never preempted. While requests that hold all of their units leave it none, its step waits and
// no request starts.
//
// Requests may have deadlines and may be cancelled: they leave when their task ends.
#ifndef CHAIRLIFT_BATCHING_POLICIES_CONTINUOUS_H_
#define CHAIRLIFT_BATCHING_POLICIES_CONTINUOUS_H_

#include <memory>

#include "batching/policy.h"

namespace chairlift {

// The allowed slowdown of a step by parts of prompts beside it, as a factor.
inline constexpr double kSlowdown = 1.5;
// The same if several prompts wait. All weights are read for each step, so the more tokens share a
// step, the sooner the queue is empty.
//
// Simulated for GPT-2 with costs measured on two cores of a Zen 3 (16 clients, prompts of 32 to 512
// tokens, answers of 16 to 128): factor 1.5 gives 72 tokens a second; 2, 2.5 and 3 give 110. The
// time between tokens is 36, 74, 106 and 133 ms. If the fixed cost of a step equals 20 tokens and
// all lengths are equal, 2 gives 0.81 of the throughput of 3.
inline constexpr double kSlowdownForSeveral = 2;
// Prompt tokens beside steps if costs are unknown.
inline constexpr int32_t kUnknownPiece = 32;

StatusOr<std::unique_ptr<Scheduler>> MakeContinuousScheduler(const PolicyOptions& options);
// For comparison: prompts are not divided, however long they make a step.
StatusOr<std::unique_ptr<Scheduler>> MakeWholePromptsScheduler(const PolicyOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_CONTINUOUS_H_
