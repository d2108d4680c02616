// What the graph-batching policies share (the baselines of BatchMaker §2.3): requests are collected
// into a batch, one worker runs the batch to its end, and nobody leaves before.
//
// A request cancelled in a running batch stays in it, as padding.
//
// A worker without a batch takes the next one from the groups of waiting requests in turn, as large
// as it can be now; nothing is held back for company. A group keeps its turn while full batches are
// left of those who waited when the turn began: else groups of rare, long requests would get as
// many batches as all the others, which costs half of the throughput on sentences. What a policy
// adds: which requests may share a batch, and what the batch's next step is, or next steps: several
// in one task as cellular batching has them, since what a task costs besides is the same here.
#ifndef CHAIRLIFT_BATCHING_POLICIES_BASELINES_GRAPH_BATCH_H_
#define CHAIRLIFT_BATCHING_POLICIES_BASELINES_GRAPH_BATCH_H_

#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "batching/policy.h"
#include "batching/request_table.h"
#include "batching/type_phases.h"

namespace chairlift {

class GraphBatchScheduler : public RequestTable {
 public:
  // max_batch_size: requests in a batch (one that adds several rows by its last node counts as that
  // many).
  explicit GraphBatchScheduler(const PolicyOptions& options)
      : RequestTable({.stops_between_nodes = false}), options_(options) {}

 protected:
  using Group = uint64_t;
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
    bool padded_steps = false;  // as Task has it
  };
  struct Batch {
    std::vector<Slot> requests;
    std::vector<Member> ready;  // in order of readiness
    std::map<CellType, TypeUse> types;
    std::deque<Step> steps;  // formed, not given out
    int in_flight = 0;       // tasks
  };

  // Requests of one group may share a batch.
  virtual Group GroupOf(const CellGraph& graph) const = 0;
  // Moves nodes of batch.ready into batch.steps; called when there are no steps. Must add some
  // where any node is ready.
  virtual void FormSteps(Batch& batch) = 0;

  WorkerId WorkerOf(const Batch& batch) const { return outlines_[batch.requests.front()].worker; }

  // Takes the ready nodes for which wanted(member, node) holds out of the batch's list.
  template <typename Wanted>
  std::vector<Member> TakeReady(Batch& batch, Wanted&& wanted) {
    std::vector<Member> taken;
    std::vector<Member> rest;
    for (const Member member : batch.ready) {
      const bool take = wanted(member, node(member));
      (take ? taken : rest).push_back(member);
      if (take) --batch.types.at(node(member).type).ready;
    }
    batch.ready = std::move(rest);
    return taken;
  }

  const PolicyOptions options_;
  TypePhases phases_;

 private:
  // What a request adds to a batch.
  struct Outline {
    struct OfType {
      CellType type;
      int nodes = 0;
      int32_t node_rows = 0;  // most rows of a node
      int longest_chain = 0;  // most nodes of it in a row
    };
    Group group = 0;
    std::vector<OfType> types;
    WorkerId worker = kNoWorker;  // that runs its batch
  };

  std::optional<Task> NextTask(WorkerId worker) final;
  void Arrived(Slot slot, const CellGraph& graph) final;
  void Ready(std::span<const Member> nodes) final;
  void Gone(Slot slot) final;
  void Released(Slot slot) final;
  void Grew(Slot slot, int32_t node, std::span<const int32_t> dependencies) final;
  void Ended(const Running& task) final { --batches_.at(task.worker).in_flight; }
  void CollectLeft(const Running& task, std::vector<BatchRequestId>& left) final;

  Outline OutlineOf(const CellGraph& graph);
  void StartBatch(WorkerId worker);

  std::vector<Outline> outlines_;                     // by slot
  std::map<Group, std::map<uint64_t, Slot>> groups_;  // waiting, by arrival; none is empty
  Group turn_ = 0;                                    // the first group to be looked at
  size_t turn_left_ = 0;  // of those that waited when its turn began: who has not been taken
  std::map<WorkerId, Batch> batches_;  // at work
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_BASELINES_GRAPH_BATCH_H_
