// The life cycle of a group's workers: when they are started, become ready, and end.
#include <spdlog/spdlog.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/out_of_memory.h"
#include "base/status.h"
#include "engine/programs/process/worker_group.h"
#include "engine/programs/process/worker_script.h"

namespace chairlift {
namespace {

// How often a worker's memory is checked, in batches.
constexpr int64_t kBatchesBetweenChecks = 64;
// How long all workers must be busy before another is started, and idle before it ends.
constexpr auto kGrowAfter = std::chrono::seconds(1);
constexpr auto kShrinkAfter = std::chrono::seconds(60);

std::string PythonOf(const FunctionConfig& config) {
  if (!config.python_executable.empty()) return config.python_executable;
  const char* const from_environment = std::getenv("CHAIRLIFT_PYTHON");
  return from_environment != nullptr && *from_environment != '\0' ? from_environment : "python3";
}

}  // namespace

Status WorkerGroup::StartWorker() {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::filesystem::path script, FindWorkerScript());
  CHAIRLIFT_ASSIGN_OR_RETURN(
      std::unique_ptr<WorkerProcess> process,
      WorkerProcess::Start({.python = PythonOf(options_.config),
                            .script = script,
                            .file = options_.file,
                            .function = options_.config.function,
                            .parts = options_.parts,
                            .argument = options_.config.argument,
                            .max_memory_bytes = options_.config.max_memory_bytes}));
  auto worker = std::make_shared<Worker>();
  worker->process = std::move(process);
  worker->caller =
      std::make_shared<ModelCaller>(*worker->process, options_.calls, options_.config.calls);
  worker->slots.resize(static_cast<size_t>(options_.config.batches_in_flight));
  worker->deadline = clock_.Now() + std::chrono::microseconds(options_.config.load_timeout_us);
  const Lock lock(mutex_);
  worker->id = next_worker_++;
  const auto watch = [&](int descriptor, Source source) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = EventOf(worker->id, source)}};
    return descriptor < 0 || ::epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) == 0;
  };
  if (!watch(worker->process->socket(), Source::kSocket) ||
      !watch(worker->process->output(), Source::kOutput) ||
      !watch(worker->process->ended(), Source::kProcess)) {
    return ResourceExhausted("a worker cannot be watched: {}", std::strerror(errno));
  }
  workers_.emplace(worker->id, std::move(worker));
  return absl::OkStatus();
}

void WorkerGroup::StartDue() {
  while (true) {
    {
      const Lock lock(mutex_);
      if (ending_ || stopping_) return;
      const auto due = std::min_element(starts_.begin(), starts_.end());
      if (due == starts_.end() || *due > clock_.Now()) return;
      starts_.erase(due);
    }
    const Status started = CatchOutOfMemory([&] { return StartWorker(); });
    if (started.ok()) continue;
    const Lock lock(mutex_);
    if (!loaded_) {
      loaded_ = started;
      ending_ = true;
      loaded_changed_.notify_all();
      return;
    }
    last_death_ = Message(started);
    spdlog::error("{}: {}", options_.name, last_death_);
    starts_.push_back(clock_.Now() +
                      std::max<Duration>(restarts_.Died(), std::chrono::milliseconds(100)));
  }
}

void WorkerGroup::Resize() {
  const FunctionConfig& config = options_.config;
  if (config.max_workers <= config.workers) return;
  const TimePoint now = clock_.Now();
  std::shared_ptr<Worker> unneeded;
  {
    const Lock lock(mutex_);
    if (!loaded_ || ending_ || stopping_) return;
    int serving = 0;
    for (const auto& [id, worker] : workers_) {
      if (!worker->serves()) continue;
      ++serving;
      if (worker->load() == 0) unneeded = worker;
    }
    if (serving > 0 && unneeded == nullptr) {
      if (!busy_since_) busy_since_ = now;
      last_busy_ = now;
      const bool all = serving == wanted_ && starts_.empty();
      if (!all || wanted_ >= config.max_workers || now - *busy_since_ < kGrowAfter) return;
      ++wanted_;
      busy_since_ = now;
      starts_.push_back(now);
      spdlog::info("{}: all workers are busy; starting worker {}", options_.name, wanted_);
      return;
    }
    busy_since_.reset();
    if (unneeded == nullptr || wanted_ == config.workers || now - last_busy_ < kShrinkAfter) return;
    --wanted_;
    last_busy_ = now;
    unneeded->closing = true;
  }
  CloseIfIdle(*unneeded);
}

void WorkerGroup::BecomeReady(Worker& worker) {
  bool close_worn = false;
  {
    const Lock lock(mutex_);
    if (!loaded_ && signature_.outputs.empty()) signature_ = worker.protocol.signature();
    int serving = 0;
    for (const auto& [id, other] : workers_) {
      serving += other.get() != &worker && other->serves() && !other->worn ? 1 : 0;
    }
    worker.spare = serving >= wanted_;
    for (const auto& [id, other] : workers_) {
      if (!other->worn || other->closing) continue;
      other->closing = close_worn = true;
      break;
    }
    const bool all = std::all_of(workers_.begin(), workers_.end(),
                                 [](const auto& entry) { return entry.second->protocol.ready(); });
    if (!loaded_ && all && starts_.empty()) {
      loaded_ = absl::OkStatus();
      loaded_changed_.notify_all();
    }
  }
  if (close_worn) {
    for (const auto& [id, other] : workers_) CloseIfIdle(*other);  // changed on this thread only
  }
  DeliverWaiting();
}

void WorkerGroup::CloseIfIdle(Worker& worker) {
  const Lock lock(mutex_);
  if (!worker.closing || worker.closed || worker.load() > 0) return;
  worker.closed = true;
  worker.deadline = clock_.Now() + kTimeToEnd;
  worker.process->CloseSending();
}

void WorkerGroup::Lose(const std::shared_ptr<Worker>& worker, std::string why) {
  bool expected = false;
  bool blameless = false;  // it ended because of a request that was known to be at fault
  {
    const Lock lock(mutex_);
    if (std::exchange(worker->dead, true)) return;
    workers_.erase(worker->id);  // nothing may kill it later: its process id may be reused
    expected = worker->closed || ending_ || stopping_;
  }
  worker->caller->Close();
  Log(*worker);
  const std::string end = worker->process->Reap();
  Log(*worker);
  if (why.empty()) why = end;
  {
    const Lock lock(mutex_);
    if (!expected) {
      ++deaths_;
      if (!worker->protocol.ready()) {
        for (const std::string& line : worker->process->last_output()) why += "\n" + line;
      }
      last_death_ = why;
      // Those behind the first were not started: they go to another worker.
      for (size_t i = 1; i < worker->in_flight.size(); ++i) {
        waiting_.insert(waiting_.begin() + static_cast<ptrdiff_t>(i) - 1,
                        std::move(worker->in_flight[i].batch));
      }
      worker->in_flight.resize(std::min<size_t>(worker->in_flight.size(), 1));
    }
    for (InFlight& own : worker->in_flight) {
      own.times.compute = clock_.Now() - std::max(worker->front_begun, own.sent);
      blameless = !own.cancelled.ok() || own.batch->retried();
      if (!own.cancelled.ok()) {
        ended_.push_back({std::move(own.batch), FunctionBatch::Failure::kNever,
                          std::move(own.cancelled), own.times});
        continue;
      }
      ended_.push_back({std::move(own.batch), FunctionBatch::Failure::kEnded,
                        Unavailable("the worker {} while it computed the batch", why), own.times});
    }
    worker->in_flight.clear();
    if (!expected && !loaded_) {
      loaded_ = InvalidArgument("{}", worker->protocol.ready() ? "the worker " + why : why);
      ending_ = true;
      loaded_changed_.notify_all();
    } else if (!expected) {
      for (const auto& [id, other] : workers_) {
        if (!other->spare || !other->protocol.ready()) continue;
        other->spare = false;
        break;
      }
      const Duration delay = blameless ? Duration(0) : restarts_.Died();
      spdlog::error("{}: worker {} {}; a new worker starts in {} ms", options_.name, worker->id,
                    why, std::chrono::duration_cast<std::chrono::milliseconds>(delay).count());
      if (!worker->worn) starts_.push_back(clock_.Now() + delay);
    }
  }
  FinishEnded();
  DeliverWaiting();
}

void WorkerGroup::CheckWear(Worker& worker) {
  const FunctionConfig& config = options_.config;
  if (worker.worn) return;
  const char* why = nullptr;
  if (config.restart_after_batches > 0 && worker.batches >= config.restart_after_batches) {
    why = "reached restart_after_batches";
  } else if (config.restart_after_bytes > 0 && worker.batches % kBatchesBetweenChecks == 1 &&
             worker.process->ResidentBytes() >= config.restart_after_bytes) {
    why = "reached restart_after_bytes";
  }
  if (why == nullptr) return;
  spdlog::info("{}: worker {} {}; a new worker replaces it", options_.name, worker.id, why);
  const Lock lock(mutex_);
  worker.worn = true;
  starts_.push_back(clock_.Now());
}

TimePoint WorkerGroup::DeadlineOf(const Worker& worker) const {
  if (worker.closed || worker.hung_up || !worker.protocol.ready()) return worker.deadline;
  if (worker.in_flight.empty()) return TimePoint::max();
  const InFlight& front = worker.in_flight.front();
  if (worker.held && front.cancelled.ok()) return TimePoint::max();  // it waits for the server
  const TimePoint step =
      worker.front_since + std::chrono::microseconds(options_.config.batch_timeout_us);
  if (front.cancelled.ok() || !signature_.streams) return step;
  return std::min(step, CancelDeadlineOf(worker));
}

TimePoint WorkerGroup::CancelDeadlineOf(const Worker& worker) const {
  // One that was cancelled before it came to the front is checked when it starts.
  return std::max(worker.in_flight.front().cancelled_at, worker.front_begun) +
         std::chrono::microseconds(options_.config.cancel_timeout_us);
}

TimePoint WorkerGroup::StreamDeadlineOf(const Worker& worker) const {
  if (!signature_.streams || worker.in_flight.empty()) return TimePoint::max();
  if (!worker.in_flight.front().cancelled.ok()) return TimePoint::max();
  return worker.front_begun + std::chrono::microseconds(options_.config.stream_timeout_us);
}

std::string WorkerGroup::WhyOverdue(const Worker& worker) const {
  if (worker.closed || worker.hung_up) return "did not end";
  if (!worker.protocol.ready()) {
    return fmt::format("did not load the function in {} s (load_timeout_us)",
                       static_cast<double>(options_.config.load_timeout_us) * 1e-6);
  }
  if (signature_.streams && !worker.in_flight.front().cancelled.ok()) {
    return fmt::format("was killed because it did not end a cancelled batch in {} s",
                       static_cast<double>(options_.config.cancel_timeout_us) * 1e-6);
  }
  return fmt::format("was killed because it did not answer in {} s (batch_timeout_us)",
                     static_cast<double>(options_.config.batch_timeout_us) * 1e-6);
}

void WorkerGroup::KillOverdue() {
  const TimePoint now = clock_.Now();
  std::vector<std::shared_ptr<Worker>> overdue;
  {
    const Lock lock(mutex_);
    for (const auto& [id, worker] : workers_) {
      if (DeadlineOf(*worker) <= now) overdue.push_back(worker);
    }
  }
  for (const std::shared_ptr<Worker>& worker : overdue) {
    Hear(worker);  // it may have answered meanwhile
    std::string why;
    {
      const Lock lock(mutex_);
      if (worker->dead || DeadlineOf(*worker) > now) continue;
      why = WhyOverdue(*worker);
      worker->process->Kill();
    }
    Lose(worker, why);
  }
}

}  // namespace chairlift
