// The window policy (Clipper's and Triton's dynamic batching): ready nodes of one type queue up,
// and a task is formed of the oldest ones
//   - at once, where they reach max_batch_size or the next one would exceed it;
//   - at once, where some number of the oldest has a preferred size (the largest such number);
//   - when the oldest has waited queue_delay; at once where that is 0.
// Among types that could form a task, the one whose oldest node has waited longest goes first, so
// that no type starves. Within a type, nodes leave in the order they became ready.
//
// Use it for models that run as a whole. It holds back a newcomer of a recurrent model until the
// batch before it has ended; that is what the cellular policy is for.
#ifndef CHAIRLIFT_BATCHING_POLICIES_WINDOW_H_
#define CHAIRLIFT_BATCHING_POLICIES_WINDOW_H_

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "batching/policy.h"

namespace chairlift {

StatusOr<std::unique_ptr<Scheduler>> MakeWindowScheduler(const PolicyOptions& options);

class WindowScheduler : public Scheduler {
 public:
  // Options must have passed MakeWindowScheduler's checks.
  explicit WindowScheduler(const PolicyOptions& options);

  void Arrive(BatchRequestId request, const CellGraph& graph, ClientId client, TimePoint now,
              std::optional<TimePoint> deadline) override;
  bool Cancel(BatchRequestId request, TimePoint now) override;
  std::optional<Task> Next(WorkerId worker, TimePoint now) override;
  std::vector<BatchRequestId> Complete(TaskId task, TimePoint now,
                                       std::span<const Growth> grown) override;
  std::vector<BatchRequestId> TakeExpired(TimePoint now) override;
  std::optional<TimePoint> WakeAt(TimePoint now) const override;
  int waiting() const override { return waiting_; }

 private:
  // Numbers ready nodes in the order they became ready.
  using Sequence = uint64_t;

  struct Node {
    CellType type;
    int32_t rows;
    int32_t blocked_by;  // dependencies that have not ended
    std::vector<int32_t> successors;
    std::optional<Sequence> queued_as;  // while it is in its type's queue
    bool ended = false;
  };
  struct Request {
    ClientId client;
    std::optional<TimePoint> deadline;
    int32_t length = 0;
    bool started = false;
    bool leaving = false;  // cancelled; nodes of it are in flight
    int unfinished = 0;    // nodes that have not ended
    int in_flight = 0;
    std::vector<Node> nodes;
  };
  struct Entry {
    NodeRef node;
    int32_t rows;
    TimePoint ready_at;
  };
  using TypeQueue = std::map<Sequence, Entry>;
  // How many of a queue's entries make a task now, skipping those whose client has an earlier
  // request that has not started.
  struct Formation {
    std::vector<Sequence> entries;
    std::optional<TimePoint> oldest;  // when the first that may start became ready
  };

  static void Append(Request& request, CellType type, int32_t rows,
                     std::span<const int32_t> dependencies);
  void Enqueue(BatchRequestId id, int32_t node, TimePoint now);
  void Dequeue(CellType type, Sequence sequence);
  void MarkStarted(BatchRequestId id, Request& request);
  // Takes the request out of every queue, and away unless nodes of it are in flight.
  void Leave(BatchRequestId id, Request& request);
  // Takes it away if nothing is left to do for it; says whether.
  bool EraseIfDone(BatchRequestId id);
  void Expire(TimePoint now);
  Formation Form(const TypeQueue& queue, TimePoint now) const;
  static int SizeOf(int32_t rows) { return rows > 1 ? rows : 1; }

  const PolicyOptions options_;
  Sequence next_sequence_ = 1;
  TaskId next_task_ = 1;
  int waiting_ = 0;
  absl::flat_hash_map<BatchRequestId, Request> requests_;
  absl::flat_hash_map<CellType, TypeQueue> queues_;  // none is empty
  std::set<std::pair<Sequence, CellType>> heads_;    // the first entry of every queue
  // Requests of a client that have not started, in order of arrival.
  absl::flat_hash_map<ClientId, std::deque<BatchRequestId>> clients_;
  std::set<std::pair<TimePoint, BatchRequestId>> deadlines_;  // of requests that have not started
  std::vector<BatchRequestId> expired_;                       // not yet told
  absl::flat_hash_map<TaskId, std::vector<NodeRef>> tasks_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_WINDOW_H_
