// The life cycle of requests, common to all policies: slots, dependencies of nodes, the order of
// each client's requests, deadlines, cancellation, running tasks, growth.
//
// A policy derives from RequestTable. The table reports which nodes have become ready and which
// requests are gone. The policy orders the nodes and forms tasks in NextTask().
#ifndef CHAIRLIFT_BATCHING_REQUEST_TABLE_H_
#define CHAIRLIFT_BATCHING_REQUEST_TABLE_H_

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "batching/live_graph.h"
#include "batching/scheduler.h"

namespace chairlift {

// O(1) per node and edge. In steady state only the node list of each task is allocated.
class RequestTable : public Scheduler {
 public:
  void Arrive(BatchRequestId request, const CellGraph& graph, ClientId client, TimePoint now,
              std::optional<TimePoint> deadline) final;
  std::unique_ptr<PreparedGraph> Prepare(const CellGraph& graph) const final;
  void ArrivePrepared(BatchRequestId request, const CellGraph& graph,
                      std::unique_ptr<PreparedGraph> prepared, ClientId client, TimePoint now,
                      std::optional<TimePoint> deadline) final;
  bool Cancel(BatchRequestId request, TimePoint now) final;
  std::optional<Task> Next(WorkerId worker, TimePoint now) final;
  std::vector<BatchRequestId> Complete(TaskId task, TimePoint now,
                                       std::span<const Growth> grown) final;
  std::vector<BatchRequestId> TakeExpired(TimePoint now) final;
  std::optional<TimePoint> WakeAt(TimePoint now) const final;
  int waiting() const final { return waiting_; }

 protected:
  // A live request's number; small, dense and reused. A policy may keep arrays indexed by slot.
  using Slot = int32_t;
  static constexpr Slot kNoSlot = -1;

  // The next node of a run of a request (index into LiveGraph::nodes).
  struct Member {
    Slot slot;
    int32_t node;
    int32_t steps = 1;  // as in NodeRef
    int32_t rows = 0;   // as in NodeRef
    bool set_back = false;
  };

  // Fields that every node touches come first.
  struct Request : LiveGraph {
    int32_t in_flight = 0;  // its nodes in running tasks
    bool present = false;   // the slot is in use
    bool started = false;   // a node has been in a task
    bool leaving = false;   // cancelled or expired, but not yet removed
    bool expired = false;
    BatchRequestId id = 0;
    // Its neighbours among its client's requests in order of arrival, until they have started.
    Slot earlier = kNoSlot;
    Slot later = kNoSlot;
    ClientId client = 0;
    uint64_t arrival = 0;  // sequence number in order of arrival
    TimePoint arrived{};
    int32_t length = 0;                                                // of its graph
    std::optional<std::multimap<TimePoint, Slot>::iterator> deadline;  // while it applies

    // Must not start yet: an earlier request of its client has not started.
    bool held() const { return earlier != kNoSlot; }
  };

  struct Running {
    CellType type;
    WorkerId worker;
    std::vector<Member> members;
  };

  // How policies differ in the life cycle of requests.
  struct Rules {
    // A request that is cancelled after its start leaves between its nodes. If false, the rest of
    // it is computed as padding, and it leaves when the policy calls LetGo().
    bool stops_between_nodes = true;
    // A deadline applies until the request's last node, not only until its first.
    bool deadline_until_end = false;
    // Readers that become ready when one node ends are reported in order; if false, in reverse.
    bool first_reader_first = false;
  };

  explicit RequestTable(Rules rules) : rules_(rules) {}

  // --- For a policy to implement

  // A task for the worker, made by Give(), or nothing.
  virtual std::optional<Task> NextTask(WorkerId worker) = 0;
  // Every input of these runs' next nodes is in a task: complete if node.not_complete is 0, else
  // running on node.worker. In the second case a node is reported again when all its inputs are
  // complete, unless it has been in a task before. `nodes` is not empty: the first nodes of a new
  // request, or those that follow from one task.
  virtual void Ready(std::span<const Member> nodes) = 0;
  // Called once per request. From now on none of its nodes may be put into a task, and none is
  // reported again. Its running tasks still end.
  virtual void Gone(Slot slot) = 0;

  // A request has arrived. Ready() follows.
  virtual void Arrived(Slot /*slot*/, const CellGraph& /*graph*/) {}
  // The request is no longer held().
  virtual void Released(Slot /*slot*/) {}
  // The request has one more run. Ready() follows if all the node's inputs are in tasks.
  virtual void Grew(Slot /*slot*/, int32_t /*node*/, std::span<const int32_t> /*dependencies*/) {}
  // A task has ended. Ready() follows for the nodes that read from its nodes.
  virtual void Ended(const Running& /*task*/) {}
  // Calls LetGo() for the requests of this task that have nothing left to compute.
  virtual void CollectLeft(const Running& task, std::vector<BatchRequestId>& left);
  // The earliest time after `now` at which NextTask() may change its answer without an event.
  virtual std::optional<TimePoint> FormsAt(TimePoint /*now*/) const { return std::nullopt; }

  // --- For a policy to call

  Request& request(Slot slot) { return *requests_[slot]; }
  const Request& request(Slot slot) const { return *requests_[slot]; }
  LiveNode& node(Member member) { return requests_[member.slot]->nodes[member.node]; }
  const LiveNode& node(Member member) const { return requests_[member.slot]->nodes[member.node]; }
  // The time of the current event.
  TimePoint now() const { return now_; }

  // An empty list, reusing the capacity of an ended task's list.
  std::vector<Member> TakeList();
  // Starts the request, which releases its client's next one. Give() calls it if the policy has
  // not.
  void Start(Slot slot);
  // Whether other nodes wait for places in the task.
  enum class Waiting { kNobody, kForPlaces };
  // Gives the members of a task as many further steps as fit into `slice`, at most `most` steps in
  // total, and sorts them by steps in descending order. Returns the largest number. If others wait
  // for places, the task ends as soon as a row of the next step would cost more than a row of
  // another task. One step if `costs` is null or unknown.
  int32_t AddSteps(CellType type, WorkerId worker, const CostModel* costs, Duration slice,
                   Waiting waiting, std::vector<Member>& members, int32_t padding_rows = 0,
                   int32_t most = kMostSteps);
  // More steps than this save nothing.
  static constexpr int32_t kMostSteps = 256;
  // Makes a task of these nodes in this order, which must be by descending steps. Nodes of requests
  // that are leaving become rows of padding. Calls Ready() for the nodes' readers.
  Task Give(CellType type, WorkerId worker, std::vector<Member> members);
  // Removes the request: it is answered, was cancelled or has expired.
  void LetGo(Slot slot, std::vector<BatchRequestId>& left);

 private:
  struct Prepared;

  Slot Enter(BatchRequestId id, const CellGraph& graph, ClientId client, TimePoint now,
             std::optional<TimePoint> deadline);
  void Announce(Slot slot, const CellGraph& graph);
  void Expire(TimePoint now);
  // The request was cancelled or has expired.
  void Leave(Slot slot);
  void DropDeadline(Request& request);
  void Free(Slot slot);

  const Rules rules_;
  TimePoint now_{};
  std::vector<std::unique_ptr<Request>> requests_;
  std::vector<Slot> free_;
  absl::flat_hash_map<BatchRequestId, Slot> slots_;
  // The last request of each client that has not started.
  absl::flat_hash_map<ClientId, Slot> clients_;
  std::multimap<TimePoint, Slot> deadlines_;
  std::vector<BatchRequestId> expired_;  // not yet returned by TakeExpired()
  absl::flat_hash_map<TaskId, Running> running_;
  std::vector<std::vector<Member>> spare_;  // node lists of ended tasks, for reuse
  std::vector<Member> offered_;             // used during an event
  // Scratch memory of AddSteps().
  std::vector<int32_t> rows_by_step_;
  std::vector<Member> unordered_;
  uint64_t arrivals_ = 0;
  TaskId next_task_ = 1;
  int waiting_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_REQUEST_TABLE_H_
