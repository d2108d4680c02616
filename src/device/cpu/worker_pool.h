// The CPU's workers: one thread each, a bounded queue of jobs each, and help for each other while
// they have none.
//
// A job belongs to one worker. It may open a team; the parts of its For() calls are then claimed,
// one by one, by its own worker and by whichever workers are idle at that moment, be it that they
// were when the job began or have become so since. A helper that is given a job of its own stops
// claiming; nobody waits for a part that nobody has claimed. A thread outside may run a job as a
// worker that has nothing to do.
#ifndef CHAIRLIFT_DEVICE_CPU_WORKER_POOL_H_
#define CHAIRLIFT_DEVICE_CPU_WORKER_POOL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "chairlift/status.h"
#include "device/cpu/team.h"

namespace chairlift {

struct WorkerPoolOptions {
  int workers = 0;          // 0: as many as the process may use cores
  std::vector<int> cores;   // see PlaceWorkers
  int queue_capacity = 16;  // jobs waiting per worker
};

// Thread-safe.
class WorkerPool {
 public:
  using Job = std::function<void(int worker)>;  // must not throw

  static StatusOr<std::unique_ptr<WorkerPool>> Create(const WorkerPoolOptions& options);
  // Waits for jobs that run on callers' threads, runs those still queued, then joins the threads.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()); }

  // The worker that is pinned to the core that the calling thread runs on, if there is one. As that
  // worker the caller shares a core with none of those that may help it.
  std::optional<int> WorkerHere() const;

  // Queues `job` behind the worker's others. False, and `job` untouched, where its queue is full.
  [[nodiscard]] bool Submit(int worker, Job&& job);

  // Runs `job` as `worker` on the calling thread, whose caller waits for it anyhow: no thread is
  // woken. False, and nothing done, where that worker has something to do. Jobs submitted to it
  // meanwhile wait.
  [[nodiscard]] bool RunHere(int worker, absl::FunctionRef<void(int worker)> job);

  // The team of one running job, held while it lives.
  class TeamLease {
   public:
    ~TeamLease();
    TeamLease(const TeamLease&) = delete;
    TeamLease& operator=(const TeamLease&) = delete;
    Team& team() { return *team_; }
    // Whether another worker has run a part since the lease began.
    bool helped() const;

   private:
    friend class WorkerPool;
    TeamLease(WorkerPool& pool, int worker, bool shared);
    WorkerPool& pool_;
    SoloTeam solo_;
    Team* team_;
  };

  // To be called by a job running on `worker`, for one lease at a time. A shared team is that
  // worker and whoever is idle when parts are to be claimed, and is as wide as the pool; any number
  // of jobs may hold one. Else it is the worker alone, which is best for a job too short to wake
  // anybody for.
  TeamLease OpenTeam(int worker, bool shared);

 private:
  class SharedTeam;
  struct Worker;

  explicit WorkerPool(int workers, int queue_capacity);
  void Main(int index);
  bool RunOne(int index);
  // Who runs as a worker, its thread or a caller of RunHere(), holds it.
  bool Take(int index);
  void GiveBack(int index);
  // Claims parts of other workers' jobs until there are none left, or a job of its own.
  bool Help(int index);
  // Whether another worker's job has parts that nobody has claimed.
  bool SeesParts(int index) const;
  void Park(int index);
  void WakeParked(int limit);

  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<int> pinned_to_core_;  // the worker of each core; −1: none
  const size_t queue_capacity_;
  alignas(128) std::atomic<int> leases_{0};  // of shared teams
  alignas(128) std::atomic<int> parked_{0};
  alignas(128) std::atomic<int> visitors_{0};  // in RunHere()
  std::atomic<bool> stopping_{false};
};

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_CPU_WORKER_POOL_H_
