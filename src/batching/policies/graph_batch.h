// What the graph-batching policies share (the baselines of BatchMaker §2.3): requests are collected
// into a batch, one worker runs the batch to its end, and nobody leaves before.
//
// A request cancelled in a running batch stays in it, as padding.
//
// A worker without a batch takes the next one from the groups of waiting requests in turn, as large
// as it can be now; nothing is held back for company. A group keeps its turn while full batches are
// left of those who waited when the turn began: else groups of rare, long requests would get as
// many batches as all the others, which costs half of the throughput on sentences. What a policy
// adds: which requests may share a batch, and what the batch's next step is.
#ifndef CHAIRLIFT_BATCHING_POLICIES_GRAPH_BATCH_H_
#define CHAIRLIFT_BATCHING_POLICIES_GRAPH_BATCH_H_

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "batching/client_order.h"
#include "batching/last_requests.h"
#include "batching/live_request.h"
#include "batching/policy.h"
#include "batching/type_phases.h"

namespace chairlift {

Status CheckGraphBatchOptions(const PolicyOptions& options);

class GraphBatchScheduler : public Scheduler {
 public:
  // Options must have passed CheckGraphBatchOptions. max_batch_size: requests in a batch (one that
  // adds several rows by its last node counts as that many).
  explicit GraphBatchScheduler(const PolicyOptions& options) : options_(options) {}

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

 protected:
  using Slot = int32_t;
  using Group = uint64_t;
  struct Member {
    Slot slot;
    int32_t node;
  };
  // Of one type, in one batch.
  struct TypeUse {
    int ready = 0;                       // nodes
    int to_give = 0;                     // nodes not given out
    absl::flat_hash_set<Slot> requests;  // that have nodes of it
    int32_t node_rows = 0;               // most rows of a node
    int longest_chain = 0;               // most nodes of it in a row in one request
    int steps = 0;                       // given out
  };
  struct Step {
    CellType type = 0;
    std::vector<Member> nodes;
    int32_t padding_rows = 0;
  };
  struct Batch {
    std::vector<Slot> requests;
    std::vector<Member> ready;  // in order of readiness
    std::map<CellType, TypeUse> types;
    std::deque<Step> steps;  // formed, not given out
    int in_flight = 0;       // tasks
  };

  // Requests of one group may share a batch. Called at any time, from any thread.
  virtual Group GroupOf(const CellGraph& graph) const = 0;
  // Moves nodes of batch.ready into batch.steps; called when there are no steps. Must add some
  // where any node is ready.
  virtual void FormSteps(Batch& batch) = 0;

  const LiveNode& NodeOf(Member member) const { return requests_[member.slot]->nodes[member.node]; }
  // Takes the ready nodes for which wanted(member, node) holds out of the batch's list.
  template <typename Wanted>
  std::vector<Member> TakeReady(Batch& batch, Wanted&& wanted) {
    std::vector<Member> taken;
    std::vector<Member> rest;
    for (const Member member : batch.ready) {
      const LiveNode& node = NodeOf(member);
      const bool take = wanted(member, node);
      (take ? taken : rest).push_back(member);
      if (take) --batch.types.at(node.type).ready;
    }
    batch.ready = std::move(rest);
    return taken;
  }

  const PolicyOptions options_;
  TypePhases phases_;

 private:
  struct RunningTask {
    WorkerId worker;
    std::vector<Member> nodes;
  };
  // What a graph adds to a batch.
  struct Outline {
    struct OfType {
      CellType type;
      int32_t first = 0;  // node
      int nodes = 0;
      int32_t node_rows = 0;  // most rows of a node
      int longest_chain = 0;  // most nodes of it in a row
    };
    Group group = 0;
    std::vector<OfType> types;   // by their first nodes
    std::vector<int32_t> ready;  // nodes that read from none
  };
  struct Request : LiveRequest {
    Outline outline;
    uint64_t arrival = 0;
    WorkerId worker = kNoWorker;  // that runs its batch
  };

  // A graph as a request that has not arrived.
  struct Prepared;

  Outline OutlineOf(const CellGraph& graph) const;
  // A place for the request, whose nodes are there or to come; it waits once it is enqueued.
  Slot Enter(BatchRequestId id, Outline outline, const CellGraph& graph, ClientId client,
             std::optional<TimePoint> deadline);
  void Enqueue(Slot slot);
  // The request no longer waits: it starts or leaves.
  void StopWaiting(Slot slot);
  void StartBatch(WorkerId worker);
  void AddNode(Batch& batch, Slot slot, int32_t node);
  void OfferIfReady(Batch& batch, Slot slot, int32_t node);
  Task GiveOut(Step step, Batch& batch, WorkerId worker);
  void Free(Slot slot);
  void Expire(TimePoint now);

  std::vector<std::unique_ptr<Request>> requests_;
  std::vector<Slot> free_;
  absl::flat_hash_map<BatchRequestId, Slot> slots_;
  std::map<Group, std::map<uint64_t, Slot>> groups_;  // waiting, by arrival; none is empty
  Group turn_ = 0;                                    // the first group to be looked at
  size_t turn_left_ = 0;  // of those that waited when its turn began: who has not been taken
  std::map<WorkerId, Batch> batches_;  // at work
  absl::flat_hash_map<TaskId, RunningTask> running_;
  ClientOrder clients_;
  LastRequests last_requests_;
  std::set<std::pair<TimePoint, Slot>> deadlines_;  // of requests that wait
  std::vector<BatchRequestId> expired_;
  uint64_t arrivals_ = 0;
  TaskId next_task_ = 1;
  int waiting_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_GRAPH_BATCH_H_
