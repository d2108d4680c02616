// Cellular batching (BatchMaker, EuroSys'18, §4.3, Algorithm 1): requests join and leave at every
// cell. A task takes ready nodes of one cell type, of the oldest requests first, up to the type's
// largest useful batch; a request leaves with its own last node.
//
// A worker that may have another task gets it from the first of these that holds a type, the
// latest phase (highest priority) among several:
//   - types with enough ready nodes for a full batch (those that could have a larger one, below,
//     after others for a while);
//   - types with ready nodes and no task running;
//   - types with ready nodes.
// A type passed over for kCellularPatience steps in a row comes before all of them.
//
// Where we deviate from Algorithm 1 as printed, and why:
//   - Only nodes that this worker may take count as ready, so no task is empty.
//   - Readiness belongs to nodes, not to subgraphs: a node is ready when everything it reads is
//     complete or in an earlier task of one and the same worker, which is then the only one that
//     may take it. So step t of a second layer starts when step t of the first has been given out,
//     where the document would release the second layer only with the end of the first; and a
//     parent in a tree starts when its own children have. A node that reads from tasks in flight
//     on two workers waits until they are complete.
//   - A subgraph is pinned while it has nodes in flight, as in the document, and while a ready node
//     of it reads from a task in flight.
//   - Ready subgraphs are filed by worker; no list is scanned for those that are ready.
//   - How far a worker runs ahead. Fixed, as in the document: a worker with nothing to do gets
//     max_tasks_to_submit tasks of one type (all but the first of at least the type's min), then
//     nothing until they have ended. Adaptive: one task while a request waits or has just joined;
//     up to max_tasks_to_submit while nobody has joined for a while. A worker that has a task gets
//     no batch below the type's min.
//   - A task may run several steps of its rows (Task): as many as last no longer than `slice`
//     beyond the first, so that a newcomer waits that much longer at most; than five slices where
//     as many requests wait as it has rows, behind which a newcomer waits in any case. A row whose
//     steps end earlier drops out, and the batch narrows. Where nodes of the type are left that
//     found no place, a further step must cost no more for each of its rows than those before did,
//     with what the task takes once. What reads from a step becomes ready when the task has been
//     given out, as above.
//   - Deep before wide: binding a row to a task costs the same for one step as for many. Once a
//     task has twice the rows with which steps are nearly as fast a row as they get, and their
//     steps fill its time, it takes no more: the rest is for other workers and later tasks, and
//     those that came first end first.
//   - A type has two largest batches: `max` rows, more of which hardly make the machine faster, and
//     `most`, for when twice that is ready for each worker: a request then waits no longer for its
//     own task than it would for others. A type with `max` ready nodes is passed over for two steps
//     at most of types that have `most`.
//   - Requests may have deadlines and may be cancelled, in the middle too: they leave where their
//     task ends.
//
// Starvation: of a type's ready subgraphs, the one that came into being first goes first, and a
// worker is given at most kCellularPatience + the number of types steps, and a task to its end,
// before one of a type that it could take. So a node never waits for later subgraphs than its own:
// what came with its request goes before all later requests; what a request grew (a decoder's first
// step) waits for its turn among what was there by then.
//
// Cost: O(1) amortised per node and edge; nothing is allocated in steady state but the node list of
// each task.
#ifndef CHAIRLIFT_BATCHING_POLICIES_CELLULAR_H_
#define CHAIRLIFT_BATCHING_POLICIES_CELLULAR_H_

#include <memory>

#include "batching/policy.h"

namespace chairlift {

// Once so many steps of other types have been given in a row in spite of a type's ready nodes, it
// is its turn.
inline constexpr int kCellularPatience = 64;

StatusOr<std::unique_ptr<Scheduler>> MakeCellularScheduler(const PolicyOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_CELLULAR_H_
