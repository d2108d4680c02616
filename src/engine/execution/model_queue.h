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
#include "engine/execution/request_costs.h"
#include "engine/programs/program.h"

namespace chairlift {

struct Request;
using RequestId = uint64_t;  // as in chairlift/engine.h

// The dispatcher's part of each model. Used under mutex() unless stated otherwise.
class ModelQueue {
 public:
  // `program` must outlive it. `name`: the model's.
  ModelQueue(std::string name, Program& program, std::unique_ptr<Scheduler> scheduler);

  // Taken before the lock of ActiveModels, and never together with another model's.
  AdaptiveMutex& mutex() { return mutex_; }

  Scheduler& scheduler() { return *scheduler_; }
  const Scheduler& scheduler() const { return *scheduler_; }
  QueueTime& queue_time() { return queue_time_; }
  const QueueTime& queue_time() const { return queue_time_; }

  // Types of nodes: a cell's nodes with equal keys have the same type, which requests hold while
  // they are in the engine. The first type of each cell is the cell's own number.
  CellType HoldType(int cell, std::span<const int64_t> key);
  void ReleaseType(CellType type);
  int cell(CellType type) const { return types_[type].cell; }

  // The expected time of a task: from the program or, if that does not know, from other tasks of
  // its type.
  Duration ExpectedCost(const Task& task) const;
  // Gives the queue time the cost of a type's units, if the program knows it.
  void ExpectUnits(CellType type);
  // Learns from a task's time; `helped`: more than one worker ran it.
  void Learn(const Task& task, bool helped, Duration cost);

  // Requests that are being unfolded, wait or run.
  absl::flat_hash_map<RequestId, std::shared_ptr<Request>> requests;
  // Request::deadline and Request::start_by of unanswered requests.
  std::set<std::pair<TimePoint, RequestId>> deadlines;
  int waiting = 0;  // waiting requests, as counted in the total of all models
  // For a program with lanes (Program::lanes): those without a task.
  std::vector<WorkerId> free_lanes;
  const TaskLanes lanes;
  // Changed under mutex(), read without it: requests being unfolded; remaining work of its
  // requests.
  std::atomic<int> unfolding{0};
  std::atomic<Duration> work{Duration(0)};
  std::atomic<double> stretch{1};                 // of waits (LearnWait)
  std::atomic<Duration> batch_time{Duration(0)};  // of a recent task, rather too long (BatchTime)
  std::atomic<int> begun{0};                      // tasks in lanes
  // Admitted requests that are not in the queue yet, and their expected work (Coming). Changed and
  // read without a lock.
  std::atomic<int64_t> coming{0};
  std::atomic<int64_t> coming_ns{0};
  // Work that is expected but has not arrived; all accepted work that is not computed. No lock
  // needed.
  Duration ToCome() const;
  Duration Backlog() const { return Left(ToCome()); }
  // The same, if `to_come` of it has not arrived.
  Duration Left(Duration to_come) const;
  // Changed under mutex(), read without it: the number of its requests.
  std::atomic<int64_t> present{0};
  // Accepted requests that are in this queue, have parts in it, or will ask this model. Changed and
  // read without a lock.
  std::atomic<int64_t> turns{0};
  // The fraction of the work here that is computed before a new request, which asks this model
  // `times` times and is counted in `coming`, is done. No lock needed.
  double Before(int64_t times) const;

  // Costs of requests to this model by their size, here and at the models that it calls.
  const std::shared_ptr<RequestCosts> costs = std::make_shared<RequestCosts>();
  // The expected work here of a request to `front` with that many bytes of inputs: what others of
  // its size took, or an estimate from other sizes and the cost table. `unknown` if there is
  // nothing to estimate it from. No lock needed.
  Duration WorkOf(const ModelQueue& front, int64_t bytes, Duration unknown) const;
  // Whether the units of its requests say nothing about their size, because each runs by itself:
  // then WorkOf() counts, not the queue time's units.
  bool counts_by_size() const { return counts_by_size_; }
  // The expected bytes of inputs in a request's body, and what the body had, to learn from. No lock
  // needed.
  int64_t InputBytesOf(const UnreadBody& body) const;
  void LearnInputBytes(const UnreadBody& body, int64_t bytes);

  // A request has started after it waited `waited`; its expected wait was `expected`.
  void LearnWait(Duration expected, Duration waited) {
    wait_stretch_.Learn(expected, waited);
    stretch = wait_stretch_.factor();
  }

  // Clients' shares of the queue. A separate lock; no other is taken inside it.
  std::mutex shares_mutex;
  FairShare shares;

  // Used by ActiveModels, under its lock.
  struct Share {
    int requests = 0;                     // the model is active while this is not 0
    Duration used{0};                     // charged compute time so far
    uint64_t number = 0;                  // unique among active models
    std::optional<TimePoint> wake = {};   // when it must be looked at
    uint64_t changes = 0;                 // number of changes after which a worker may get a task
    std::vector<uint64_t> asked_in_vain;  // by worker: `changes` when it last got none
  };
  Share share;

 private:
  using Key = absl::InlinedVector<int64_t, 8>;
  struct Type {
    int cell = 0;
    Key key;
    int holders = 0;
    Duration mean_cost{0};  // of a task; a running mean that favours recent tasks
  };

  AdaptiveMutex mutex_;
  Program& program_;
  const std::string name_;
  const bool takes_texts_;
  const int64_t place_bytes_;  // of its inputs, for each row, token or time step
  const double place_ns_;      // what these cost by the cost table; 0: unknown
  const bool counts_by_size_;
  // Bytes of inputs per byte of JSON, a running mean. Two updates at the same moment count as one.
  std::atomic<double> per_json_byte_{1};
  const std::unique_ptr<Scheduler> scheduler_;
  QueueTime queue_time_;
  WaitStretch wait_stretch_;
  BatchTime batch_time_;
  std::vector<Type> types_;
  absl::flat_hash_map<std::pair<int, Key>, CellType> by_key_;
  // By cell, for reuse: a policy keeps what it knows about a type.
  absl::flat_hash_map<int, std::vector<CellType>> free_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_EXECUTION_MODEL_QUEUE_H_
