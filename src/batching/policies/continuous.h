// Continuous batching of requests that generate: at every step all that are under way ride
// together, one token each, and prompts ride beside them, in pieces (iteration-level scheduling:
// Yu et al., "Orca", OSDI 2022; pieces of prompts beside steps: Agrawal et al., "Sarathi-Serve",
// OSDI 2024, §4.2).
//
// A request's graph is one node, its prompt, which is divisible; then it grows, by one node at a
// time: what is left of the prompt, or a step. Rows are tokens.
//
// One task is in flight at a time, for all workers together: a second one would read all weights
// again for a part of the requests. It has, in this order:
//   1. steps: of those that are ready the ones that waited longest, `max_batch_size` rows at most;
//   2. pieces of prompts, of the requests that arrived first. Where there are steps, so many tokens
//      that the task costs at most kSlowdown times what its steps alone do, and kSlowdownForSeveral
//      times where several requests wait for their prompts, one at the least; where costs are not
//      known, kUnknownPiece. Where there are none, as many as fit into `max_batch_size`.
// So nobody's next token waits for much more than another step, and prompts get a third of the time
// at the least: the first request that waits for a part of its prompt has one in every task.
//
// Pieces of another type than steps (what an encoder computes, which is not divisible) ride apart:
// while there are both, tasks of steps and of pieces, as many as fit, take turns, steps first. A
// token waits for `max_batch_size` rows of such pieces at the most, or for one piece that is
// larger.
//
// Memory. A request may grow to CellGraph::state() units of state. It starts when there is room
// beside those that have started, in `state_capacity`, in order of arrival: nobody passes one that
// does not fit yet, so a large request is not starved. One that does not fit alone starts when
// nobody else is under way. With capacity 0 there is no limit.
//
// A request holds all of its units from its start on, or, where CellGraph::state_rows() is set, as
// many as its prompt takes, and from there on one more whenever its rows ask for it. It starts with
// a unit left for each that may grow. Where there is none for a step, the youngest request that may
// grow is set back (NodeRef::set_back): it gives its units to the older ones, waits in its place in
// order of arrival, and computes its prompt and all that it had of its answer again, in pieces. The
// oldest is never set back; while others that hold all of theirs leave it no unit, its step waits,
// and nobody starts.
//
// Requests may have deadlines and may be cancelled: they leave where their task ends.
#ifndef CHAIRLIFT_BATCHING_POLICIES_CONTINUOUS_H_
#define CHAIRLIFT_BATCHING_POLICIES_CONTINUOUS_H_

#include <memory>

#include "batching/policy.h"

namespace chairlift {

// How much longer a step may take for the pieces of prompts beside it, in times.
inline constexpr double kSlowdown = 1.5;
// ... where several prompts wait: all weights are read for each step, and the more tokens share
// that the sooner the queue is gone. (GPT-2, 16 clients, prompts of 32 to 512 tokens, answers of 16
// to 128, simulated with costs measured on two cores of a Zen 3: with 1.5 72 tokens a second, with
// 2, 2.5 and 3 110; from one token to the next 36, 74, 106 and 133 ms. Where what a step takes once
// is what 20 tokens take, and all lengths are equal, 2 gives 0.81 of the tokens that 3 does.)
inline constexpr double kSlowdownForSeveral = 2;
// Tokens of prompts beside steps where costs are not known.
inline constexpr int32_t kUnknownPiece = 32;

StatusOr<std::unique_ptr<Scheduler>> MakeContinuousScheduler(const PolicyOptions& options);
// To be compared with: prompts are not cut, however long steps take with one beside them.
StatusOr<std::unique_ptr<Scheduler>> MakeWholePromptsScheduler(const PolicyOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_CONTINUOUS_H_
