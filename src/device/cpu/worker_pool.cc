#include "device/cpu/worker_pool.h"

#include <pthread.h>
#include <sched.h>
#include <spdlog/spdlog.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/status.h"
#include "device/cpu/cores.h"

namespace chairlift {
namespace {

using SteadyClock = std::chrono::steady_clock;

// How long an idle worker watches for parts after the last sign of a shared job: a few times what
// waking a parked thread takes where cores are virtual (70 µs). Longer than the serial stretches
// between two forks of most models, shorter than a scheduler tick.
constexpr auto kSpin = std::chrono::microseconds(200);
// How long it watches for a job after its last one, about what waking a parked thread takes:
// whoever waits for each answer before the next request is back within this. It does not yield: a
// core that is offered to others may be gone for milliseconds, and nobody would wake the worker.
constexpr auto kLinger = std::chrono::microseconds(30);
// How long the owner of a fork watches for the last helper before it offers its core: a helper that
// the kernel has descheduled may need it.
constexpr auto kJoinSpin = std::chrono::microseconds(200);

inline void CpuRelax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Until it goes, the calling thread takes denormals for zero: they cost a hundred cycles each and
// carry nothing a model needs.
class FlushDenormals {
 public:
#if defined(__x86_64__)
  FlushDenormals() : before_(_mm_getcsr()) {
    constexpr unsigned kFlushToZero = 0x8000;
    constexpr unsigned kDenormalsAreZero = 0x0040;
    _mm_setcsr(before_ | kFlushToZero | kDenormalsAreZero);
  }
  ~FlushDenormals() { _mm_setcsr(before_); }
#elif defined(__aarch64__)
  FlushDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("msr fpcr, %0" : : "r"(before_ | (uint64_t{1} << 24)));
  }
  ~FlushDenormals() { asm volatile("msr fpcr, %0" : : "r"(before_)); }
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__x86_64__)
  unsigned before_;
#elif defined(__aarch64__)
  uint64_t before_;
#endif
};

// Pins the calling thread; false where the kernel refuses.
bool PinTo(int core) {
  cpu_set_t* set = CPU_ALLOC(core + 1);
  const size_t bytes = CPU_ALLOC_SIZE(core + 1);
  CPU_ZERO_S(bytes, set);
  CPU_SET_S(core, bytes, set);
  const bool ok = pthread_setaffinity_np(pthread_self(), bytes, set) == 0;
  CPU_FREE(set);
  return ok;
}

// The parts of a fork and how many of them its owner and its helpers have claimed: the owner from
// the first part on, helpers from the last one back. Forks that cut the same rows in the same way
// are so computed by the same of two workers, one fork after the other, and find in their own
// core's cache most of what the last one wrote.
struct Ticket {
  static constexpr int kBits = 21;  // of each count of claims, some of which come too late
  static constexpr uint64_t kByOwner = uint64_t{1} << kBits, kByHelper = 1;
  static constexpr int kMostParts = (1 << kBits) - 4 * Team::kMaxWorkers;

  static constexpr uint64_t Opened(int parts) { return static_cast<uint64_t>(parts) << 2 * kBits; }

  uint32_t parts, by_owner, by_helpers;
  explicit constexpr Ticket(uint64_t value)
      : parts(static_cast<uint32_t>(value >> 2 * kBits)),
        by_owner(static_cast<uint32_t>(value >> kBits & (kByOwner - 1))),
        by_helpers(static_cast<uint32_t>(value & (kByOwner - 1))) {}
  constexpr bool open() const { return by_owner + by_helpers < parts; }
};

// Parts to be claimed. Fields that different threads write lie on lines of their own.
struct Fork {
  // A Ticket: a fetch_add() claims. Whatever value it meets describes the fork in progress at that
  // instant, so that a helper that comes late claims from a newer fork, rightly, or finds nothing.
  alignas(128) std::atomic<uint64_t> ticket{0};
  alignas(128) std::atomic<uint32_t> done{0};  // by helpers
  // Written before `ticket` opens; read only by claimants, for whom the owner waits.
  alignas(128) const absl::FunctionRef<void(int, int)>* body = nullptr;

  // The first exception of a body, which may run out of memory; written before its part is done.
  std::atomic<bool> failed{false};
  std::exception_ptr error;

  bool open() const { return Ticket(ticket.load()).open(); }
  void Run(const absl::FunctionRef<void(int, int)>& part_body, uint32_t part, int worker) {
    try {
      part_body(static_cast<int>(part), worker);
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  }
};

}  // namespace

// For() of a job that others may help. A fork and join of two parts that meet (each waits for the
// other to be claimed, so that both workers take part) costs 0.28 us in the median, 0.41 us at p99,
// of 200,000 in a row on two cores of an EPYC 9004; of parts that nobody helps with, some ns each.
class WorkerPool::SharedTeam : public Team {
 public:
  SharedTeam(WorkerPool& pool, int worker) : pool_(pool), worker_(worker) {}
  int width() const override { return pool_.size(); }

  void For(int parts, absl::FunctionRef<void(int, int)> body) override {
    if (parts <= 1) {
      if (parts == 1) body(0, worker_);
      return;
    }
    if (parts > Ticket::kMostParts) {  // if one half throws, the other may not run
      const int half = parts / 2;
      For(half, body);
      return For(parts - half, [&](int part, int worker) { body(half + part, worker); });
    }
    fork_.body = &body;
    fork_.done.store(0, std::memory_order_relaxed);
    // Either this sees whoever parks, or they see the parts: see Park().
    fork_.ticket.store(Ticket::Opened(parts));
    if (pool_.parked_.load() > 0) pool_.WakeParked(parts - 1);

    uint32_t mine = 0;
    while (true) {
      const Ticket ticket(fork_.ticket.fetch_add(Ticket::kByOwner, std::memory_order_relaxed));
      if (!ticket.open()) break;
      fork_.Run(body, ticket.by_owner, worker_);
      ++mine;
    }
    const uint32_t theirs = static_cast<uint32_t>(parts) - mine;
    if (theirs > 0) {
      helped_ = true;
      Join(theirs);
    }
    if (fork_.failed.load(std::memory_order_relaxed)) {
      fork_.failed.store(false, std::memory_order_relaxed);
      std::rethrow_exception(std::exchange(fork_.error, nullptr));
    }
  }

  // For other workers: runs parts while there are any and `more()`.
  template <typename More>
  bool Help(int worker, const More& more) {
    bool helped = false;
    while (more() && fork_.open()) {
      const Ticket ticket(fork_.ticket.fetch_add(Ticket::kByHelper, std::memory_order_acquire));
      if (!ticket.open()) break;
      fork_.Run(*fork_.body, ticket.parts - 1 - ticket.by_helpers, worker);
      fork_.done.fetch_add(1, std::memory_order_release);
      helped = true;
    }
    return helped;
  }

  bool open() const { return fork_.open(); }
  bool helped() const { return helped_; }
  void Begin() { helped_ = false; }

 private:
  bool Joined(uint32_t theirs) const {
    return fork_.done.load(std::memory_order_acquire) == theirs;
  }
  void Join(uint32_t theirs) const {
    if (Joined(theirs)) return;
    const auto patience = SteadyClock::now() + kJoinSpin;
    while (true) {
      for (int i = 0; i < 64; ++i) {
        if (Joined(theirs)) return;
        CpuRelax();
      }
      if (SteadyClock::now() > patience) std::this_thread::yield();
    }
  }

  WorkerPool& pool_;
  const int worker_;
  bool helped_ = false;  // the owner's
  Fork fork_;
};

struct WorkerPool::Worker {
  Worker(WorkerPool& pool, int index) : team(pool, index) {}

  // Bumped to wake it; what it sleeps on.
  alignas(128) std::atomic<uint32_t> signal{0};
  std::atomic<bool> parked{false};
  std::atomic<bool> taken{false};  // somebody runs as this worker
  alignas(128) std::atomic<int> queued{0};
  std::mutex mutex;
  std::deque<Job> queue;  // guarded by mutex
  int core = -1;
  SharedTeam team;
  std::thread thread;

  void Wake() {
    signal.fetch_add(1);
    signal.notify_one();
  }
};

WorkerPool::TeamLease::TeamLease(WorkerPool& pool, int worker, bool shared)
    : pool_(pool), solo_(worker), team_(&solo_) {
  if (!shared) return;
  SharedTeam& team = pool.workers_[static_cast<size_t>(worker)]->team;
  team.Begin();
  team_ = &team;
  pool.leases_.fetch_add(1, std::memory_order_relaxed);
  // Awake before the first fork, so that it need not pay for it.
  if (pool.parked_.load(std::memory_order_relaxed) > 0) pool.WakeParked(pool.size());
}

WorkerPool::TeamLease::~TeamLease() {
  if (team_ != &solo_) pool_.leases_.fetch_sub(1, std::memory_order_relaxed);
}

bool WorkerPool::TeamLease::helped() const {
  return team_ != &solo_ && static_cast<const SharedTeam*>(team_)->helped();
}

WorkerPool::WorkerPool(int workers, int queue_capacity)
    : queue_capacity_(static_cast<size_t>(queue_capacity)) {
  for (int i = 0; i < workers; ++i) workers_.push_back(std::make_unique<Worker>(*this, i));
}

StatusOr<std::unique_ptr<WorkerPool>> WorkerPool::Create(const WorkerPoolOptions& options) {
  if (options.queue_capacity < 1) {
    return InvalidArgument("a worker's queue of {} jobs; it must hold at least 1",
                           options.queue_capacity);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(
      const WorkerPlacement placement,
      PlaceWorkers(options.workers, options.cores, AllowedCores(), CgroupCoreQuota()));
  std::unique_ptr<WorkerPool> pool(new WorkerPool(placement.workers, options.queue_capacity));
  for (int i = 0; i < placement.workers; ++i) {
    if (placement.pinned.empty()) continue;
    const int core = placement.pinned[i];
    pool->workers_[i]->core = core;
    auto& pinned = pool->pinned_to_core_;
    pinned.resize(std::max(pinned.size(), static_cast<size_t>(core) + 1), -1);
    pinned[static_cast<size_t>(core)] = i;
  }
  for (int i = 0; i < placement.workers; ++i) {
    pool->workers_[i]->thread = std::thread([p = pool.get(), i] { p->Main(i); });
  }
  return pool;
}

WorkerPool::~WorkerPool() {
  while (visitors_.load() > 0) std::this_thread::yield();
  stopping_ = true;
  for (auto& worker : workers_) worker->Wake();
  for (auto& worker : workers_) {
    if (worker->thread.joinable()) worker->thread.join();
  }
}

std::optional<int> WorkerPool::WorkerHere() const {
  const auto core = static_cast<size_t>(sched_getcpu());  // a failure is no core either
  if (core >= pinned_to_core_.size() || pinned_to_core_[core] < 0) return std::nullopt;
  return pinned_to_core_[core];
}

bool WorkerPool::Submit(int index, Job&& job) {
  Worker& worker = *workers_[index];
  {
    const std::lock_guard<std::mutex> lock(worker.mutex);
    if (worker.queue.size() >= queue_capacity_) return false;
    worker.queue.push_back(std::move(job));
    worker.queued.fetch_add(1);
  }
  worker.Wake();
  return true;
}

bool WorkerPool::Take(int index) {
  return !workers_[static_cast<size_t>(index)]->taken.exchange(true);
}

void WorkerPool::GiveBack(int index) {
  Worker& worker = *workers_[static_cast<size_t>(index)];
  worker.taken.store(false);
  // Either this sees the job that came meanwhile, or Park() sees that nobody runs as the worker.
  if (worker.queued.load() > 0) worker.Wake();
}

bool WorkerPool::RunHere(int index, absl::FunctionRef<void(int)> job) {
  const Worker& worker = *workers_[static_cast<size_t>(index)];
  ++visitors_;
  const bool free = worker.queued.load() == 0 && Take(index);
  if (free) {
    const FlushDenormals flush;
    job(index);
    GiveBack(index);
  }
  --visitors_;  // the last that is done here: the pool may go
  return free;
}

WorkerPool::TeamLease WorkerPool::OpenTeam(int worker, bool shared) {
  return TeamLease(*this, worker, shared && size() > 1);
}

void WorkerPool::WakeParked(int limit) {
  for (auto& worker : workers_) {
    if (limit <= 0) return;
    if (worker->parked.load(std::memory_order_relaxed) &&
        !worker->taken.load(std::memory_order_relaxed)) {
      worker->Wake();
      --limit;
    }
  }
}

void WorkerPool::Main(int index) {
  Worker& self = *workers_[index];
  pthread_setname_np(pthread_self(), ("worker-" + std::to_string(index)).c_str());
  if (self.core >= 0 && !PinTo(self.core)) {
    spdlog::warn("worker {} could not be pinned to core {}: it floats", index, self.core);
  }
  const FlushDenormals flush;
  SteadyClock::time_point watch_until{};
  bool was_shared = false;
  while (true) {
    if (RunOne(index)) {
      watch_until = SteadyClock::now() + kLinger;
      continue;
    }
    if (stopping_.load()) {
      // A job queued just before may have come after RunOne looked.
      if (RunOne(index)) continue;
      return;
    }
    const bool shared = leases_.load(std::memory_order_relaxed) > 0;
    const bool helped = Help(index);
    const SteadyClock::time_point now = SteadyClock::now();
    if (helped || (shared && !was_shared)) watch_until = now + kSpin;
    was_shared = shared;
    if (now < watch_until) {
      for (int i = 0; i < 32 && self.queued.load(std::memory_order_relaxed) == 0; ++i) {
        if (SeesParts(index)) break;
        CpuRelax();
      }
      continue;
    }
    Park(index);
    was_shared = false;  // whoever woke it wants it to look around
  }
}

bool WorkerPool::RunOne(int index) {
  Worker& self = *workers_[index];
  if (self.queued.load() == 0 || !Take(index)) return false;
  Job job;
  {
    const std::lock_guard<std::mutex> lock(self.mutex);
    job = std::move(self.queue.front());  // only who runs as the worker takes one
    self.queue.pop_front();
    self.queued.fetch_sub(1);
  }
  job(index);
  job = nullptr;
  GiveBack(index);
  return true;
}

bool WorkerPool::Help(int index) {
  if (!SeesParts(index) || !Take(index)) return false;
  const Worker& self = *workers_[index];
  const auto free = [&] { return self.queued.load(std::memory_order_relaxed) == 0; };
  bool helped = false;
  // From its neighbour on, so that helpers spread over the jobs.
  for (int i = 1; i < size() && free(); ++i) {
    helped |= workers_[(index + i) % size()]->team.Help(index, free);
  }
  GiveBack(index);
  return helped;
}

bool WorkerPool::SeesParts(int index) const {
  for (int i = 0; i < size(); ++i) {
    if (i != index && workers_[i]->team.open()) return true;
  }
  return false;
}

void WorkerPool::Park(int index) {
  Worker& self = *workers_[index];
  const uint32_t signal = self.signal.load();
  // Whatever comes after this load changes `signal`, and the wait returns at once.
  // While another runs as this worker there is nothing to do, whatever is queued.
  if ((self.queued.load() > 0 && !self.taken.load()) || stopping_.load()) return;
  self.parked.store(true, std::memory_order_relaxed);
  parked_.fetch_add(1);
  // Whoever has opened a fork without seeing this had opened it before: it is seen here.
  if (self.taken.load() || !SeesParts(index)) self.signal.wait(signal);
  self.parked.store(false, std::memory_order_relaxed);
  parked_.fetch_sub(1);
}

}  // namespace chairlift
