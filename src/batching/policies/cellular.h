// Cellular batching (BatchMaker, EuroSys'18, §4.3, Algorithm 1): requests join and leave at every
// cell. A task takes ready nodes of one cell type, oldest requests first, up to the type's largest
// useful batch. A request leaves with its last node.
//
// A worker that may have another task gets a type from the first of these groups that is not empty;
// within a group, the type of the latest phase (highest priority):
//   - types with enough ready nodes for a full batch (for a while, types that could have a larger
//     batch, see below, come after others);
//   - types with ready nodes and no task running;
//   - types with ready nodes.
// A type that was passed over for kCellularPatience consecutive steps comes before all of these.
//
// Differences from Algorithm 1 as printed, and the reasons:
//   - Only nodes that this worker may take count as ready, so no task is empty.
//   - Nodes are ready, not subgraphs. A node is ready when everything it reads is complete or in an
//     earlier task of one single worker, which is then the only one that may take it. So step t of
//     a second layer can start once step t of the first is in a task, whereas the paper starts the
//     second layer only after the end of the first. A parent in a tree starts when its own children
//     have. A node that reads from running tasks of two workers waits until they are complete.
//   - A subgraph is pinned while it has nodes in flight, as in the paper, and while one of its
//     ready nodes reads from a running task.
//   - Ready subgraphs are listed by worker, so nothing is scanned to find them.
//   - Run-ahead. Fixed, as in the paper: an idle worker gets max_tasks_to_submit tasks of one type
//     (all but the first with at least the type's min), then nothing until they have ended.
//     Adaptive: one task while a request waits or has just joined, and up to max_tasks_to_submit
//     while no request has joined for a while. A worker that has a task gets no batch below the
//     type's min.
//   - A task may run several steps of its rows (Task): as many as take at most `slice` longer than
//     the first, which bounds the extra wait of a new request. The bound is five slices if as many
//     requests wait as the task has rows, because a new request has to wait for those anyway. A row
//     whose steps end earlier drops out, and the batch narrows. If ready nodes of the type found no
//     place, a further step must cost no more per row than the steps before, including the task's
//     fixed cost. Nodes that read from a step become ready when the task starts, as above.
//   - Deep before wide: adding a row to a task costs the same for one step as for many. A task
//     stops taking rows at twice the number that makes steps nearly as fast per row as possible,
//     provided that their steps fill its time. The other rows are left to other workers and later
//     tasks, so early requests end first.
//   - A type has two largest batches: `max` rows, beyond which throughput hardly improves, and
//     `most`, which is used if twice that is ready for each worker. A request then waits no longer
//     for its own task than it would for others. A type with `max` ready nodes is passed over for
//     at most two steps of types that have `most`.
//   - Requests may have deadlines and may be cancelled, also in the middle: they leave when their
//     task ends.
//
// Starvation: the oldest ready subgraph of a type goes first. A worker is given at most
// kCellularPatience + (number of types) steps, plus a task that is running, before one of a type
// that it could take. So a node never waits for subgraphs newer than its own. Subgraphs that arrive
// with a request precede those of all later requests. Subgraphs that a request grows (a decoder's
// first step) wait behind those that exist at that time.
//
// Cost: O(1) amortised per node and edge. In steady state only the node list of each task is
// allocated.
#ifndef CHAIRLIFT_BATCHING_POLICIES_CELLULAR_H_
#define CHAIRLIFT_BATCHING_POLICIES_CELLULAR_H_

#include <memory>

#include "batching/policy.h"

namespace chairlift {

// After this many consecutive steps of other types while nodes of a type were ready, that type
// comes first.
inline constexpr int kCellularPatience = 64;

StatusOr<std::unique_ptr<Scheduler>> MakeCellularScheduler(const PolicyOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_CELLULAR_H_
