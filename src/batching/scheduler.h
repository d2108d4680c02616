// The interface of all batching policies: a pure state machine. Events go in; tasks and the next
// wake-up time come out. It has no tensors, threads or clock. Costs come from a CostModel.
//
// Every request is a cell graph. Cells of one type may share a task. A task runs on one worker,
// which runs its tasks in the order given (FIFO). So a task may contain a node whose inputs are
// computed by earlier tasks of the same worker; all its other inputs are complete.
//
// Not thread-safe: the engine serialises events; tests and the simulator use virtual time.
#ifndef CHAIRLIFT_BATCHING_SCHEDULER_H_
#define CHAIRLIFT_BATCHING_SCHEDULER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "batching/cell_graph.h"

namespace chairlift {

using BatchRequestId = uint64_t;
using TaskId = uint64_t;
using WorkerId = int;  // small and dense
using ClientId = uint64_t;

struct NodeRef {
  BatchRequestId request;
  int32_t node;
  // The node and its followers (CellGraph::Add): this many nodes, one per step.
  int32_t steps = 1;
  // For a divisible node (CellGraph::AddDivisible): how many of its rows the task takes, at least
  // 1. Otherwise 0: all.
  int32_t rows = 0;
  // The node is preempted, not computed. Before other nodes of the task start, the request gives
  // back its state (CellGraph::state_rows). It then grows by a divisible node with all rows that
  // must be recomputed, including this node's.
  bool set_back = false;
  friend bool operator==(const NodeRef&, const NodeRef&) = default;
};

// A task runs its nodes in one step, or the same rows in several: each further step runs the
// followers of the previous step's nodes, in the same order. Nodes are sorted by steps in
// descending order, so the batch narrows from its end.
struct Task {
  TaskId id = 0;
  CellType type = 0;
  WorkerId worker = 0;
  int32_t rows = 0;  // of all its nodes, in the first step
  // Rows of padding, computed after the others, for policies that pad their batches. They count in
  // the first step only, unless each step has as many rows as the first: then rows that have ended
  // are padding too.
  int32_t padding_rows = 0;
  bool padded_steps = false;
  // The length that every row is padded to: the longest of its requests. 0: nothing is padded.
  int32_t length = 0;
  // If its rows are tokens: the number of their sequences; 0 if that makes no difference.
  int32_t sequences = 0;
  // In the order of their rows in the batch, preempted ones first. Empty only if there are padding
  // rows.
  std::vector<NodeRef> nodes;
  int32_t steps() const { return nodes.empty() ? 1 : nodes.front().steps; }
  // Run together by all workers that have no other task.
  bool by_team = false;
};

// The cost of one batch.
class CostModel {
 public:
  virtual ~CostModel() = default;
  // Time of the whole batch. `length`: what its rows are padded to, or Task::sequences. 0: rows
  // have no length, or are tokens of any number of sequences.
  virtual Duration Cost(CellType type, int32_t rows, int32_t length) const = 0;
  // The part of the cost that a task pays once, however many steps it has. 0: several steps in one
  // task save nothing.
  virtual Duration FixedCost(CellType /*type*/) const { return Duration(0); }
};

// A policy's own form of a request's graph, made before the request arrives.
class PreparedGraph {
 public:
  virtual ~PreparedGraph() = default;
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // Adds a request. Requests of one client (≠ 0) start in order of arrival. A request that does not
  // end by its deadline leaves; a policy that cannot stop a request applies the deadline until it
  // starts.
  virtual void Arrive(BatchRequestId request, const CellGraph& graph, ClientId client,
                      TimePoint now, std::optional<TimePoint> deadline) = 0;

  // The part of Arrive() that is slow for large graphs. It is called without the scheduler's lock:
  // the only function that may be called at any time from any thread. Null if a policy has no such
  // part.
  virtual std::unique_ptr<PreparedGraph> Prepare(const CellGraph& /*graph*/) const {
    return nullptr;
  }
  // Like Arrive(), with the result of Prepare() for this graph.
  virtual void ArrivePrepared(BatchRequestId request, const CellGraph& graph,
                              std::unique_ptr<PreparedGraph> /*prepared*/, ClientId client,
                              TimePoint now, std::optional<TimePoint> deadline) {
    Arrive(request, graph, client, now, deadline);
  }

  // Ends a request early: no more of its nodes are put into tasks. True: it has left (or is
  // unknown), and TakeExpired() no longer returns it. False: it leaves later. Then Complete()
  // returns it, in the call that ends its last running node, or its batch if the policy runs
  // batches to their end. Also used for requests whose answer is known before their last node (an
  // end-of-sentence token).
  virtual bool Cancel(BatchRequestId request, TimePoint now) = 0;

  // The next task for a worker, or nothing. The policy decides how many tasks a worker has at the
  // same time: the engine calls until it gets nothing or its own queue is full.
  virtual std::optional<Task> Next(WorkerId worker, TimePoint now) = 0;

  // A run of nodes (CellGraph::Run) that a task's result appends to a request (a single node for
  // feed-previous decoding). It reads from earlier nodes, including those of the same growth.
  // `dependencies` is read during the call only.
  struct Growth {
    BatchRequestId request;
    CellType type = 0;
    int32_t rows = 1;
    std::span<const int32_t> dependencies;
    int32_t follows = -1;  // as for CellGraph::Add()
    int32_t count = 1;
    bool divisible = false;  // as for CellGraph::AddDivisible
  };
  // A task has ended; a worker's tasks end in the order they were given. Returns the requests that
  // have left: those whose last node has ended and that have not grown, to be answered now, and
  // cancelled ones without running nodes. Growth of a request that is leaving (cancelled, expired)
  // is ignored.
  virtual std::vector<BatchRequestId> Complete(TaskId task, TimePoint now,
                                               std::span<const Growth> grown) = 0;

  // Requests that missed their deadlines. Each is returned once, and has already left: none of its
  // nodes are running.
  virtual std::vector<BatchRequestId> TakeExpired(TimePoint now) = 0;

  // Earliest time after `now` at which Next() or TakeExpired() may change its answer without a
  // further event.
  virtual std::optional<TimePoint> WakeAt(TimePoint now) const = 0;

  // Whether requests take turns (CellGraph::turn). Then each node of a new request waits for at
  // most one node of every other turn. Otherwise it waits for all nodes that were there before.
  virtual bool takes_turns() const { return false; }

  // Whether requests wait until others give back state (CellGraph::state).
  virtual bool short_of_state() const { return false; }

  // Requests with no node started yet (if a policy runs batches to their end: in no batch).
  virtual int waiting() const = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_SCHEDULER_H_
