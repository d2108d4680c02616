// The CPU's workers: one thread and one bounded queue of jobs each. Idle workers help the others.
//
// A job belongs to one worker. It may open a team. The parts of the team's For() calls are claimed
// one by one, by the job's worker and by all workers that are idle at that moment. A helper that
// receives its own job stops claiming. A job never waits for a part that is unclaimed. A thread
// outside the pool may run a job as an idle worker.
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
  int workers = 0;          // 0: one per core that the process may use
  std::vector<int> cores;   // see PlaceWorkers
  int queue_capacity = 16;  // jobs waiting per worker
};

// Thread-safe.
class WorkerPool {
 public:
  using Job = std::function<void(int worker)>;  // must not throw

  static StatusOr<std::unique_ptr<WorkerPool>> Create(const WorkerPoolOptions& options);
  // Waits for jobs that run on callers' threads, runs the queued ones, then joins the threads.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()); }

  // The worker that is pinned to the calling thread's current core, if any. If the caller runs as
  // that worker, it shares its core with no helper.
  std::optional<int> WorkerHere() const;

  // Queues `job` behind the worker's other jobs. If the queue is full, returns false and leaves
  // `job` unchanged.
  [[nodiscard]] bool Submit(int worker, Job&& job);

  // Runs `job` as `worker` on the calling thread, without waking another. If that worker is busy,
  // returns false and does nothing. Jobs that are submitted to it meanwhile wait.
  [[nodiscard]] bool RunHere(int worker, absl::FunctionRef<void(int worker)> job);

  // The team of one running job; valid during its lifetime.
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

  // Called by a job that runs on `worker`; one lease at a time. A shared team consists of that
  // worker and all workers that are idle when parts can be claimed. Its width is that of the pool,
  // and any number of jobs may have one. A team that is not shared is the worker alone: best for
  // jobs that are too short to wake other threads for.
  TeamLease OpenTeam(int worker, bool shared);

 private:
  class SharedTeam;
  struct Worker;

  explicit WorkerPool(int workers, int queue_capacity);
  void Main(int index);
  bool RunOne(int index);
  // Makes the calling thread worker `index`, so that it may run that worker's jobs. False if
  // another thread is that worker now. Called by the worker's own thread and by RunHere().
  bool Take(int index);
  void GiveBack(int index);
  // Claims parts of other workers' jobs until there are none left or this worker has its own job.
  bool Help(int index);
  // Whether another worker's job has unclaimed parts.
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
