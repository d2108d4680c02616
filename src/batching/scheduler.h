// The one interface of all batching policies: a pure state machine. Events in, tasks and a next
// wake-up time out; no tensors, no threads, no clock of its own. Costs come through CostModel.
//
// Every request is a cell graph. Cells of one type may share a task; a task runs on one worker,
// which runs its tasks in the order given (FIFO). So a task may contain a node whose inputs are
// computed by earlier tasks of the same worker; all its other inputs are complete.
//
// Not thread-safe: the engine serialises events; tests and the simulator drive it in virtual time.
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
  // The node, the one that follows it (CellGraph::Add), and so on: so many nodes, one a step.
  int32_t steps = 1;
  // Of a divisible node (CellGraph::AddDivisible): so many of its rows, 1 at the least. Else 0:
  // all.
  int32_t rows = 0;
  // It is not to be computed: its request gives its state back (CellGraph::state_rows), before
  // other nodes of the task are begun, and grows by a divisible node of all the rows that it has
  // to compute again, and of this one's.
  bool set_back = false;
  friend bool operator==(const NodeRef&, const NodeRef&) = default;
};

// A task runs its nodes in one step, or the same rows in several: in each of the further steps, the
// nodes that follow those of the step before, in the same order. Its nodes come in order of their
// steps, most first, so that the batch narrows from its end.
struct Task {
  TaskId id = 0;
  CellType type = 0;
  WorkerId worker = 0;
  int32_t rows = 0;  // of its nodes together, in the first step
  // Rows of padding, computed after the others, for policies that pad their batches. In the first
  // step only, unless each has as many rows as the first: then who has ended is padding, too.
  int32_t padding_rows = 0;
  bool padded_steps = false;
  // What every row is padded to: the longest of its requests' lengths. 0 where nothing is padded.
  int32_t length = 0;
  // Where its rows are tokens, of how many sequences they are; 0: that makes no difference.
  int32_t sequences = 0;
  // In the order of their rows in the batch, those that are set back first. Empty only where there
  // are padding rows.
  std::vector<NodeRef> nodes;
  int32_t steps() const { return nodes.empty() ? 1 : nodes.front().steps; }
  // Run by all workers together that have no task of their own.
  bool by_team = false;
};

// What one batch costs, for policies that ask.
class CostModel {
 public:
  virtual ~CostModel() = default;
  // Time of the whole batch. `length`: what its rows are padded to, or Task::sequences; 0: rows
  // have no length, or are tokens of any sequences.
  virtual Duration Cost(CellType type, int32_t rows, int32_t length) const = 0;
  // What of it a task takes once, however many steps it has. 0: several steps in one save nothing.
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

  // A request enters. Requests of one client (≠ 0) start in order of arrival. A request that does
  // not end by its deadline leaves; a policy that cannot stop a request keeps the deadline until
  // it starts.
  virtual void Arrive(BatchRequestId request, const CellGraph& graph, ClientId client,
                      TimePoint now, std::optional<TimePoint> deadline) = 0;

  // The part of Arrive() that takes long for large graphs, to be done without the scheduler's lock:
  // the one function that may be called at any time, from any thread. Null if a policy has no such
  // part.
  virtual std::unique_ptr<PreparedGraph> Prepare(const CellGraph& /*graph*/) const {
    return nullptr;
  }
  // As Arrive(), with what Prepare() made of this graph.
  virtual void ArrivePrepared(BatchRequestId request, const CellGraph& graph,
                              std::unique_ptr<PreparedGraph> /*prepared*/, ClientId client,
                              TimePoint now, std::optional<TimePoint> deadline) {
    Arrive(request, graph, client, now, deadline);
  }

  // Ends a request early; none of its nodes is given out any more. True: it has left (or is
  // unknown), and TakeExpired() does not return it any more. False: it leaves later, and a
  // Complete() returns it: the one that ends the last of its nodes in flight, or its batch if the
  // policy runs batches to their end. Requests whose answer is known before their last node (an
  // end-of-sentence token) end this way, too.
  virtual bool Cancel(BatchRequestId request, TimePoint now) = 0;

  // The next task for a worker, or nothing. How many tasks a worker has at once is the policy's
  // choice: the engine calls until it gets nothing, or its own queue is full.
  virtual std::optional<Task> Next(WorkerId worker, TimePoint now) = 0;

  // A run of nodes (CellGraph::Run) that a task's result appends to a request (feed-previous: of
  // one). It reads from earlier nodes, including those of the same growth. `dependencies` is read
  // during the call only.
  struct Growth {
    BatchRequestId request;
    CellType type = 0;
    int32_t rows = 1;
    std::span<const int32_t> dependencies;
    int32_t follows = -1;  // as CellGraph::Add() takes it
    int32_t count = 1;
    bool divisible = false;  // CellGraph::AddDivisible
  };
  // A task ended; a worker's tasks end in the order given out. Returns the requests that have
  // left: those whose last node has ended and that have not grown, to be answered now, and
  // cancelled ones with nothing left in flight. Growth of a request that is leaving (cancelled,
  // expired) is ignored.
  virtual std::vector<BatchRequestId> Complete(TaskId task, TimePoint now,
                                               std::span<const Growth> grown) = 0;

  // Requests that missed their deadlines; each is reported once; it has already left: nothing of it
  // is in flight.
  virtual std::vector<BatchRequestId> TakeExpired(TimePoint now) = 0;

  // Earliest time after `now` at which Next() or TakeExpired() may change its answer with no
  // further event.
  virtual std::optional<TimePoint> WakeAt(TimePoint now) const = 0;

  // Requests with no node given out yet (if a policy runs batches to their end: in no batch).
  virtual int waiting() const = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_SCHEDULER_H_
