// One model's requests, its scheduler, and what is known of their cost.
#ifndef CHAIRLIFT_ENGINE_EXECUTION_MODEL_QUEUE_H_
#define CHAIRLIFT_ENGINE_EXECUTION_MODEL_QUEUE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/adaptive_mutex.h"
#include "base/clock.h"
#include "batching/fair_share.h"
#include "batching/queue_time.h"
#include "batching/scheduler.h"
#include "engine/programs/program.h"

namespace chairlift {

struct Request;
using RequestId = uint64_t;  // as in chairlift/engine.h

// Of each model the dispatcher's, under its mutex(), but for what says otherwise.
class ModelQueue {
 public:
  // `program` must outlive it.
  ModelQueue(Program& program, std::unique_ptr<Scheduler> scheduler);

  // Taken before the lock of ActiveModels, and never together with another model's.
  AdaptiveMutex& mutex() { return mutex_; }

  Scheduler& scheduler() { return *scheduler_; }
  const Scheduler& scheduler() const { return *scheduler_; }
  QueueTime& queue_time() { return queue_time_; }
  const QueueTime& queue_time() const { return queue_time_; }

  // Types of nodes: a cell's nodes of equal keys share one, which requests hold while they are in
  // the engine. The first type of each cell is the cell's own number.
  CellType HoldType(int cell, std::span<const int64_t> key);
  void ReleaseType(CellType type);
  int cell(CellType type) const { return types_[type].cell; }

  // What a task is expected to take: as its program says or, where that does not know, as others of
  // its type did.
  Duration ExpectedCost(const Task& task) const;
  // Has the queue's time know what units of a type cost, as far as the program does.
  void ExpectUnits(CellType type);
  // What a task took; `helped`: more than one worker ran it.
  void Learn(const Task& task, bool helped, Duration cost);

  // Unfolding, waiting or running.
  absl::flat_hash_map<RequestId, std::shared_ptr<Request>> requests;
  std::set<std::pair<TimePoint, RequestId>> deadlines;  // of those not answered
  int waiting = 0;  // of them, as counted in the total of all models
  // Of a program whose tasks run elsewhere (Program::lanes): those without a task.
  std::vector<WorkerId> free_lanes;
  const TaskLanes lanes;
  // Changed under mutex(), read by anybody: requests that unfold; what its requests have left to
  // compute; what one brings on average (QueueTime).
  std::atomic<int> unfolding{0};
  std::atomic<Duration> work{Duration(0)};
  std::atomic<Duration> typical{Duration(0)};
  std::atomic<int> begun{0};  // tasks in lanes
  // Requests of accepted ones that have not come yet (Admission); changed and read by anybody.
  std::atomic<int64_t> coming{0};
  // What was accepted and has not come yet; all that was accepted and is not computed. By anybody.
  Duration ToCome() const;
  Duration Backlog() const;

  // Clients' shares of it. A lock of its own, inside which no other is taken.
  std::mutex shares_mutex;
  FairShare shares;

  // ActiveModels', under its lock.
  struct Share {
    int requests = 0;                     // the model is active while it has some
    Duration used{0};                     // compute time charged so far
    uint64_t number = 0;                  // tells active models apart
    std::optional<TimePoint> wake = {};   // when it is to be looked at
    uint64_t changes = 0;                 // after which a worker may get a task
    std::vector<uint64_t> asked_in_vain;  // by worker: `changes` when it got none
  };
  Share share;

 private:
  using Key = absl::InlinedVector<int64_t, 8>;
  struct Type {
    int cell = 0;
    Key key;
    int holders = 0;
    Duration mean_cost{0};  // of a task, the latest weighing most
  };

  AdaptiveMutex mutex_;
  Program& program_;
  const std::unique_ptr<Scheduler> scheduler_;
  QueueTime queue_time_;
  std::vector<Type> types_;
  absl::flat_hash_map<std::pair<int, Key>, CellType> by_key_;
  // By cell: a policy keeps what it knows of a type.
  absl::flat_hash_map<int, std::vector<CellType>> free_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_EXECUTION_MODEL_QUEUE_H_
