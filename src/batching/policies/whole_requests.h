// What policies share whose requests are of one node each, as those of a model of varying length
// are: they wait, share one task, and leave with it.
//
// A worker has one task at a time, bound when it asks, so that who comes meanwhile can still join.
// Requests of one type wait in one queue, in an order that the policy sets; the type at whose head
// the earliest request stands is served first. What a policy adds: the order, and who of a queue
// makes a batch.
#ifndef CHAIRLIFT_BATCHING_POLICIES_WHOLE_REQUESTS_H_
#define CHAIRLIFT_BATCHING_POLICIES_WHOLE_REQUESTS_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "batching/client_order.h"
#include "batching/policy.h"

namespace chairlift {

class WholeRequestScheduler : public Scheduler {
 public:
  explicit WholeRequestScheduler(const PolicyOptions& options) : options_(options) {}

  // `graph` must have one node.
  void Arrive(BatchRequestId request, const CellGraph& graph, ClientId client, TimePoint now,
              std::optional<TimePoint> deadline) override;
  bool Cancel(BatchRequestId request, TimePoint now) override;
  std::optional<Task> Next(WorkerId worker, TimePoint now) override;
  // Requests do not grow.
  std::vector<BatchRequestId> Complete(TaskId task, TimePoint now,
                                       std::span<const Growth> grown) override;
  std::vector<BatchRequestId> TakeExpired(TimePoint now) override;
  std::optional<TimePoint> WakeAt(TimePoint now) const override;
  int waiting() const override { return waiting_; }

 protected:
  // Its place in the order, then its number in order of arrival.
  using Place = std::pair<uint64_t, uint64_t>;
  struct Request {
    BatchRequestId id = 0;
    ClientId client = 0;
    std::optional<TimePoint> deadline = {};
    TimePoint arrived{};
    CellType type = 0;
    int32_t rows = 1;
    int32_t length = 0;
    Place place = {};
    bool held = false;     // an earlier request of its client waits
    bool running = false;  // in a task

    // What it takes of a batch: one of no rows still takes a place.
    int32_t size() const { return rows > 1 ? rows : 1; }
  };
  struct Queue {
    std::map<Place, Request*> requests;
    int64_t size = 0;  // of all of them
  };

  // Where a request that arrives is to stand, the lowest first; equals stand in order of arrival.
  // No request of a client stands before an earlier one of the same client, whatever this says.
  virtual uint64_t OrderOf(const Request& /*request*/) { return 0; }
  // Takes requests out of a queue, which is not empty, by Take(); whoever is held must stay.
  // Returns them, or nothing where they are to wait.
  virtual std::vector<Request*> Form(CellType type, const Queue& queue, TimePoint now) = 0;
  // Whether a worker that has no task had better help with one that runs than begin another.
  virtual bool BetterToHelp(TimePoint /*now*/) const { return false; }
  // Whether the task that Form() has just taken is for all workers together.
  virtual bool by_team() const { return false; }
  // Whether batches are padded to the longest in them.
  virtual bool pads() const = 0;
  // When Form() may take what it does not take at `now`, if nothing happens.
  virtual std::optional<TimePoint> FormAt(CellType /*type*/, const Queue& /*queue*/,
                                          TimePoint /*now*/) const {
    return std::nullopt;
  }
  // Requests have joined or left it; it may be empty now.
  virtual void Changed(CellType /*type*/, const Queue& /*queue*/) {}

  // It starts: the next request of its client, which comes after it in the order, is held no more.
  void Take(Request& request);
  int busy_workers() const { return static_cast<int>(busy_.size()); }

  struct Running {
    WorkerId worker;
    CellType type;
    int32_t rows;
    bool by_team;
    TimePoint start;
    std::vector<Request*> requests;
  };
  const absl::flat_hash_map<TaskId, Running>& running() const { return running_; }
  // Of all that wait, the first. There is one.
  const Request& first() const {
    return *queues_.at(heads_.begin()->second).requests.begin()->second;
  }

  const PolicyOptions options_;

 private:
  // Takes a request that waits away.
  void Leave(BatchRequestId id);
  void EraseIfEmpty(CellType type);
  void Expire(TimePoint now);

  absl::flat_hash_map<BatchRequestId, std::unique_ptr<Request>> requests_;
  std::map<CellType, Queue> queues_;            // none is empty
  std::set<std::pair<Place, CellType>> heads_;  // of every queue
  // Of every client that waits: the place in the order of its latest request.
  absl::flat_hash_map<ClientId, uint64_t> latest_;
  ClientOrder clients_;
  std::set<std::pair<TimePoint, BatchRequestId>> deadlines_;  // of requests that wait
  std::vector<BatchRequestId> expired_;                       // not yet told
  absl::flat_hash_map<TaskId, Running> running_;
  absl::flat_hash_set<WorkerId> busy_;
  uint64_t arrivals_ = 0;
  TaskId next_task_ = 1;
  int waiting_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_WHOLE_REQUESTS_H_
