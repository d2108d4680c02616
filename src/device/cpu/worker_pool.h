// The CPU's workers: one thread each, a bounded queue of jobs each, and a team of all of them for a
// job that runs while the others have nothing to do.
//
// A job belongs to one worker. It may open a team; the parts of its For() calls are then claimed,
// one by one, by its own worker and by whichever workers are idle at that moment. A helper that is
// given a job of its own stops claiming; nobody waits for a part that nobody has claimed.
#ifndef CHAIRLIFT_DEVICE_CPU_WORKER_POOL_H_
#define CHAIRLIFT_DEVICE_CPU_WORKER_POOL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

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
  using Job = std::function<void(int worker)>;

  static StatusOr<std::unique_ptr<WorkerPool>> Create(const WorkerPoolOptions& options);
  // Runs the jobs still queued, then joins the threads.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()); }

  // Queues `job` behind the worker's others. False, and `job` untouched, where its queue is full.
  [[nodiscard]] bool Submit(int worker, Job&& job);

  // The team of one running job, held while it lives.
  class TeamLease {
   public:
    ~TeamLease();
    TeamLease(const TeamLease&) = delete;
    TeamLease& operator=(const TeamLease&) = delete;
    Team& team() { return *team_; }

   private:
    friend class WorkerPool;
    TeamLease(WorkerPool& pool, int worker, bool wide);
    WorkerPool& pool_;
    SoloTeam solo_;
    Team* team_;
  };

  // To be called by a job running on `worker`. The team is all workers where no other job holds a
  // team or is queued, and the caller knows of none about to come (`more_waits`); else the worker
  // alone: throughput is best when every worker has a job of its own.
  TeamLease OpenTeam(int worker, bool more_waits);

 private:
  // One per pool: only one job is wide at a time. Fields that different threads write lie on lines
  // of their own.
  struct Fork {
    // Parts in the upper half, the next part to claim in the lower: a fetch_add() claims. Whatever
    // value it meets describes the fork in progress at that instant, so that a helper that comes
    // late claims from a newer fork, rightly, or finds nothing.
    alignas(128) std::atomic<uint64_t> ticket{0};
    alignas(128) std::atomic<uint32_t> done{0};
    // Written before `ticket` opens; read only by claimants, for whom the owner waits.
    alignas(128) const absl::FunctionRef<void(int, int)>* body = nullptr;
  };
  class WideTeam;
  struct Worker;

  explicit WorkerPool(int workers, int queue_capacity);
  void Main(int index);
  bool RunOne(int index);
  bool Help(int index);
  void Park(int index);
  void WakeParked(int limit);

  std::vector<std::unique_ptr<Worker>> workers_;
  const size_t queue_capacity_;
  Fork fork_;
  std::unique_ptr<WideTeam> wide_team_;
  // The worker whose job is wide, or −1.
  alignas(128) std::atomic<int> wide_owner_{-1};
  alignas(128) std::atomic<int> leases_{0};  // jobs between OpenTeam() and the lease's end
  std::atomic<int> queued_{0};               // jobs that no worker has begun
  alignas(128) std::atomic<int> parked_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_CPU_WORKER_POOL_H_
