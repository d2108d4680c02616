// Cellular batching (BatchMaker, EuroSys'18, §4.3, Algorithm 1): requests join and leave at every
// cell. A task takes ready nodes of one cell type, of the oldest requests first, up to the type's
// largest useful batch; a request leaves with its own last node.
//
// A worker that may have another task gets it from the first of these that holds a type, the
// latest phase (highest priority) among several:
//   - types with enough ready nodes for a full batch;
//   - types with ready nodes and no task running;
//   - types with ready nodes.
// A type passed over kPatience times in a row comes before all of them.
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
//   - Requests may have deadlines and may be cancelled, in the middle too.
//
// Starvation: of a type's ready subgraphs, the one that came into being first goes first (with its
// request, or as the request grew), and a worker is given at most kPatience + the number of types
// tasks before one of a type that it could take. So a node never waits for later subgraphs than its
// own.
//
// Cost: O(1) amortised per node and edge; nothing is allocated in steady state but the node list of
// each task.
#ifndef CHAIRLIFT_BATCHING_POLICIES_CELLULAR_H_
#define CHAIRLIFT_BATCHING_POLICIES_CELLULAR_H_

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "batching/batch_sizes.h"
#include "batching/client_order.h"
#include "batching/last_requests.h"
#include "batching/live_request.h"
#include "batching/policy.h"
#include "batching/ready_queue.h"
#include "batching/type_phases.h"

namespace chairlift {

StatusOr<std::unique_ptr<Scheduler>> MakeCellularScheduler(const PolicyOptions& options);

class CellularScheduler : public Scheduler {
 public:
  static constexpr int kPatience = 64;

  // Options must have passed MakeCellularScheduler's checks.
  explicit CellularScheduler(const PolicyOptions& options);

  void Arrive(BatchRequestId request, const CellGraph& graph, ClientId client, TimePoint now,
              std::optional<TimePoint> deadline) override;
  std::unique_ptr<PreparedGraph> Prepare(const CellGraph& graph) const override;
  void ArrivePrepared(BatchRequestId request, const CellGraph& graph,
                      std::unique_ptr<PreparedGraph> prepared, ClientId client, TimePoint now,
                      std::optional<TimePoint> deadline) override;
  bool Cancel(BatchRequestId request, TimePoint now) override;
  std::optional<Task> Next(WorkerId worker, TimePoint now) override;
  std::vector<BatchRequestId> Complete(TaskId task, TimePoint now,
                                       std::span<const Growth> grown) override;
  std::vector<BatchRequestId> TakeExpired(TimePoint now) override;
  std::optional<TimePoint> WakeAt(TimePoint now) const override;
  int waiting() const override { return waiting_; }

 private:
  using Slot = int32_t;  // of requests_
  struct TypeState {
    BatchSizes sizes;
    int priority = 0;
    int running_tasks = 0;
    int passed_over = 0;  // tasks of other types given in spite of ready nodes, in a row
    // List 0: any worker may take them; list 1 + w: only worker w.
    ReadyQueue queue;
    std::vector<int64_t> sizes_ready;  // by list: of its ready nodes
  };
  struct Member {
    Slot slot;
    int32_t node;
  };
  struct RunningTask {
    CellType type;
    WorkerId worker;
    std::vector<Member> members;
  };
  struct WorkerState {
    int in_flight = 0;     // tasks
    CellType decided = 0;  // fixed run-ahead: the type it was given last,
    int left = 0;          // and how many more tasks of it it may have
  };

  // A graph as a request that has not arrived.
  struct Prepared;

  void Learn(CellType type);
  // A place for the request, whose nodes are there or to come.
  Slot Enter(BatchRequestId id, ClientId client, std::optional<TimePoint> deadline);
  TypeState& TypeOf(CellType type) { return types_[type]; }
  WorkerState& WorkerOf(WorkerId worker);
  int64_t Takeable(const TypeState& type, WorkerId worker) const;

  bool IsCalm() const;
  std::optional<CellType> Decide(WorkerId worker);
  std::optional<CellType> Choose(WorkerId worker, bool committed) const;
  Task Form(CellType type, WorkerId worker);
  void Collect(TypeState& type, WorkerId worker, std::vector<Member>& members);
  void Start(Slot slot);
  void GiveOut(Member member, WorkerId worker);
  void EndNode(Member member);
  void OfferIfReady(Slot slot, int32_t node);
  // Files the subgraph where its state says it belongs.
  void File(Slot slot, int32_t subgraph);
  void FileAll(Slot slot);
  // Puts the request's subgraphs from `first` on at the end of their types' queues.
  void Enqueue(Slot slot, size_t first);
  void Release(Slot slot);
  void Leave(Slot slot);
  void Expire(TimePoint now);
  void Free(Slot slot);

  const PolicyOptions options_;
  TypePhases phases_;
  std::vector<TypeState> types_;
  std::vector<WorkerState> workers_;
  std::vector<std::unique_ptr<LiveRequest>> requests_;
  std::vector<Slot> free_;
  absl::flat_hash_map<BatchRequestId, Slot> slots_;
  absl::flat_hash_map<TaskId, RunningTask> running_;
  std::vector<std::vector<Member>> spare_;  // of ended tasks
  ClientOrder clients_;
  LastRequests last_requests_;
  std::set<std::pair<TimePoint, Slot>> deadlines_;
  std::vector<BatchRequestId> expired_;  // not yet told
  TaskId next_task_ = 1;
  int waiting_ = 0;
  int tasks_since_start_ = 0;  // tasks given since a request last started
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_CELLULAR_H_
