// The life of requests, the same under every policy: slots, what nodes wait for, the order of each
// client's requests, deadlines, cancellation, tasks in flight, growth.
//
// A policy derives from RequestTable. The table reports which nodes have become ready and which
// requests are gone; the policy orders them and forms tasks in NextTask().
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

// O(1) for each node and edge; in steady state nothing is allocated but the node list of each task.
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
  // A request's number while it is live; small and dense, reused afterwards. A policy may keep
  // arrays indexed by slot.
  using Slot = int32_t;
  static constexpr Slot kNoSlot = -1;

  // The next node of a run of a request's (LiveGraph::nodes).
  struct Member {
    Slot slot;
    int32_t node;
    int32_t steps = 1;  // as NodeRef has them
    int32_t rows = 0;   // likewise
    bool set_back = false;
  };

  // Fields that every node touches come first.
  struct Request : LiveGraph {
    int32_t in_flight = 0;  // members of tasks
    bool present = false;   // the slot is in use
    bool started = false;   // some node has been given out
    bool leaving = false;   // cancelled or expired, and still here
    bool expired = false;
    BatchRequestId id = 0;
    // Its neighbours among its client's requests in order of arrival, until they have started.
    Slot earlier = kNoSlot;
    Slot later = kNoSlot;
    ClientId client = 0;
    uint64_t arrival = 0;  // numbers requests in order of arrival
    TimePoint arrived{};
    int32_t length = 0;                                                // of its graph
    std::optional<std::multimap<TimePoint, Slot>::iterator> deadline;  // while it is in force

    // Not to be given out yet: an earlier request of its client has not started.
    bool held() const { return earlier != kNoSlot; }
  };

  struct Running {
    CellType type;
    WorkerId worker;
    std::vector<Member> members;
  };

  // What differs between policies in the life of a request.
  struct Rules {
    // A request that is cancelled after its start leaves between its nodes. If false, the rest of
    // it is computed as padding, and it leaves when the policy calls LetGo().
    bool stops_between_nodes = true;
    // A deadline holds until the request's last node, not only until its first.
    bool deadline_until_end = false;
    // Readers that become ready with the end of one node come in order; if false, in reverse.
    bool first_reader_first = false;
  };

  explicit RequestTable(Rules rules) : rules_(rules) {}

  // --- What a policy implements.

  // A task for the worker, made by Give(), or nothing.
  virtual std::optional<Task> NextTask(WorkerId worker) = 0;
  // Every input of these runs' next nodes is in a task: complete if node.not_complete is 0, else in
  // flight on node.worker. A node comes once then, and once more when all its inputs are complete
  // unless it has been given out before; once only if none was in flight. `nodes` is not empty: the
  // first nodes of a request that has arrived, or those that follow from one task.
  virtual void Ready(std::span<const Member> nodes) = 0;
  // Called once per request: none of its nodes may be given out from now on, and none comes again.
  // Its tasks in flight still end.
  virtual void Gone(Slot slot) = 0;

  // A request has arrived. Ready() follows.
  virtual void Arrived(Slot /*slot*/, const CellGraph& /*graph*/) {}
  // It is no longer held().
  virtual void Released(Slot /*slot*/) {}
  // It has one more run. Ready() follows if all the node's inputs are in tasks.
  virtual void Grew(Slot /*slot*/, int32_t /*node*/, std::span<const int32_t> /*dependencies*/) {}
  // A task has ended. Ready() follows for those that read from its nodes.
  virtual void Ended(const Running& /*task*/) {}
  // Calls LetGo() for the requests that end with this task: those of its requests with nothing left
  // to compute.
  virtual void CollectLeft(const Running& task, std::vector<BatchRequestId>& left);
  // The earliest time after `now` at which NextTask() may change its answer with no event.
  virtual std::optional<TimePoint> FormsAt(TimePoint /*now*/) const { return std::nullopt; }

  // --- What a policy may use.

  Request& request(Slot slot) { return *requests_[slot]; }
  const Request& request(Slot slot) const { return *requests_[slot]; }
  LiveNode& node(Member member) { return requests_[member.slot]->nodes[member.node]; }
  const LiveNode& node(Member member) const { return requests_[member.slot]->nodes[member.node]; }
  // The time of the current event.
  TimePoint now() const { return now_; }

  // An empty list with the capacity of an ended task's.
  std::vector<Member> TakeList();
  // The request starts: its client's next one is released. Give() calls it if the policy has not.
  void Start(Slot slot);
  // Whether others wait for places in the task.
  enum class Waiting { kNobody, kForPlaces };
  // Gives the members of a task to be as many steps as fit into `slice` besides the first, `most`
  // at most, and orders them by these, the most first. Returns the most. Where others wait for
  // places, the task ends as soon as a row of the next step would cost more than one of another
  // task. One step where `costs` are null or unknown.
  int32_t AddSteps(CellType type, WorkerId worker, const CostModel* costs, Duration slice,
                   Waiting waiting, std::vector<Member>& members, int32_t padding_rows = 0,
                   int32_t most = kMostSteps);
  // More steps than this save nothing any more.
  static constexpr int32_t kMostSteps = 256;
  // Makes a task of these nodes, in this order, the most steps first. Nodes of requests that are
  // leaving become rows of padding. Calls Ready() for the nodes' readers.
  Task Give(CellType type, WorkerId worker, std::vector<Member> members);
  // The request leaves with its answer, or because it was cancelled or had expired.
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
  absl::flat_hash_map<ClientId, Slot> clients_;  // the last of each that has not started
  std::multimap<TimePoint, Slot> deadlines_;
  std::vector<BatchRequestId> expired_;  // not yet reported
  absl::flat_hash_map<TaskId, Running> running_;
  std::vector<std::vector<Member>> spare_;  // lists of ended tasks
  std::vector<Member> offered_;             // during an event
  // AddSteps()'s, kept for their memory.
  std::vector<int32_t> rows_by_step_;
  std::vector<Member> unordered_;
  uint64_t arrivals_ = 0;
  TaskId next_task_ = 1;
  int waiting_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_REQUEST_TABLE_H_
