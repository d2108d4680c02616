// Common part of the graph-batching policies (the baselines of BatchMaker §2.3): requests are
// collected into a batch, one worker runs the batch to its end, and no request leaves before.
//
// A request that is cancelled in a running batch stays in it, as padding.
//
// An idle worker takes the next batch from the groups of waiting requests in turn, as large as
// possible at that moment; no batch is held back to grow. A group keeps its turn while the requests
// that waited at its start can still fill batches. Otherwise groups of rare, long requests would
// get as many batches as all the others, which halves the throughput on sentences. A derived policy
// adds which requests may share a batch, and the batch's next step or steps. One task may have
// several steps, as in cellular batching, because the fixed cost of a task is the same here.
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
  // max_batch_size: requests in a batch (a request whose last node adds several rows counts as that
  // many).
  explicit GraphBatchScheduler(const PolicyOptions& options)
      : RequestTable({.stops_between_nodes = false}), options_(options) {}

 protected:
  using Group = uint64_t;
  // The nodes of one type in one batch.
  struct TypeUse {
    int ready = 0;                       // nodes that are ready
    int to_give = 0;                     // nodes that have not been in a task
    absl::flat_hash_set<Slot> requests;  // that have nodes of it
    int32_t node_rows = 0;               // most rows of a node
    int longest_chain = 0;               // longest chain of its nodes in one request
    int steps = 0;                       // steps started
  };
  struct Step {
    CellType type = 0;
    std::vector<Member> nodes;
    int32_t padding_rows = 0;
    bool padded_steps = false;  // as in Task
  };
  struct Batch {
    std::vector<Slot> requests;
    std::vector<Member> ready;  // in order of readiness
    std::map<CellType, TypeUse> types;
    std::deque<Step> steps;  // formed, not started
    int in_flight = 0;       // running tasks
  };

  // Requests of one group may share a batch.
  virtual Group GroupOf(const CellGraph& graph) const = 0;
  // Moves nodes from batch.ready to batch.steps; called when there are no steps. It must add some
  // if any node is ready.
  virtual void FormSteps(Batch& batch) = 0;

  WorkerId WorkerOf(const Batch& batch) const { return outlines_[batch.requests.front()].worker; }

  // Removes from the batch's list the ready nodes for which wanted(member, node) is true, and
  // returns them.
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
      int longest_chain = 0;  // longest chain of its nodes
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
  Group turn_ = 0;                                    // the first group to look at
  size_t turn_left_ = 0;  // requests that waited when its turn began and have not been taken
  std::map<WorkerId, Batch> batches_;  // running
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_BASELINES_GRAPH_BATCH_H_
