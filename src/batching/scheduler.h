// The one interface of all batching policies: a pure state machine. Events in, tasks and a next
// wake-up time out; no tensors, no threads, no clock of its own. Costs come through CostModel.
//
// Every request is a cell graph; a model that runs as a whole is a graph of one node. Cells of one
// type may share a task; a task runs on one worker, which runs its tasks in the order given (FIFO).
//
// Not thread-safe: the engine serialises events; tests and the simulator drive it in virtual time.
#ifndef CHAIRLIFT_BATCHING_SCHEDULER_H_
#define CHAIRLIFT_BATCHING_SCHEDULER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"

namespace chairlift {

using BatchRequestId = uint64_t;
using TaskId = uint64_t;
using WorkerId = int;
using ClientId = uint64_t;

// Cells that may share a batch have equal types: one model (or cell of it) with equal non-batch
// shapes. Given out by the engine, small and dense per scheduler.
using CellType = uint32_t;

struct CellNode {
  CellType type = 0;
  int32_t rows = 1;                   // rows it adds to a batch; 0 is possible
  std::vector<int32_t> dependencies;  // earlier nodes of the same request
};

struct CellGraph {
  std::vector<CellNode> nodes;
};

struct NodeRef {
  BatchRequestId request;
  int32_t node;
};

struct Task {
  TaskId id = 0;
  CellType type = 0;
  WorkerId worker = 0;
  int32_t rows = 0;
  std::vector<NodeRef> nodes;  // in the order of their rows in the batch
};

// What one batch costs, for policies that ask.
class CostModel {
 public:
  virtual ~CostModel() = default;
  virtual Duration Cost(CellType type, int32_t rows) const = 0;
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // A request enters. Requests of one client (≠ 0) start in order of arrival.
  virtual void Arrive(BatchRequestId request, const CellGraph& graph, ClientId client,
                      TimePoint now, std::optional<TimePoint> deadline) = 0;
  // The request leaves; nodes of it that are in a running task still end with that task. Unknown
  // or ended requests are ignored.
  virtual void Cancel(BatchRequestId request, TimePoint now) = 0;
  // The next task for a worker that has room, or nothing. A task is never empty.
  virtual std::optional<Task> Next(WorkerId worker, TimePoint now) = 0;
  // A task ended. `grown` are nodes appended to requests by what it computed (feed-previous).
  struct Growth {
    BatchRequestId request;
    CellNode node;
  };
  virtual void Complete(TaskId task, TimePoint now, std::span<const Growth> grown) = 0;
  // Requests whose deadline passed while they waited; each is told once and has left.
  virtual std::vector<BatchRequestId> TakeExpired(TimePoint now) = 0;
  // Earliest time after `now` at which Next() or TakeExpired() may change its answer with no
  // further event.
  virtual std::optional<TimePoint> WakeAt(TimePoint now) const = 0;
  // Requests that have not started.
  virtual int waiting() const = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_SCHEDULER_H_
