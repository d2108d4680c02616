#include "engine/programs/process/worker_group.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/out_of_memory.h"
#include "base/status.h"

namespace chairlift {
namespace {

constexpr size_t kRegionAlign = 64;
// Larger ones are written by the group's thread, because the caller may be a network thread.
constexpr size_t kLargeWrite = size_t{1} << 20;
constexpr auto kAskInterrupted = std::chrono::milliseconds(50);

size_t Aligned(size_t bytes) { return (bytes + kRegionAlign - 1) / kRegionAlign * kRegionAlign; }

}  // namespace

WorkerGroup::WorkerGroup(Options options)
    : options_(std::move(options)),
      wanted_(options_.config.workers),
      restarts_(options_.config.workers) {}

StatusOr<std::unique_ptr<WorkerGroup>> WorkerGroup::Start(Options options) {
  std::unique_ptr<WorkerGroup> group(new WorkerGroup(std::move(options)));
  group->epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  group->wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kWakeEvent}};
  if (group->epoll_ < 0 || group->wake_ < 0 ||
      ::epoll_ctl(group->epoll_, EPOLL_CTL_ADD, group->wake_, &event) != 0) {
    return ResourceExhausted("no descriptors for workers: {}", std::strerror(errno));
  }
  const FunctionConfig& config = group->options_.config;
  group->starts_.assign(
      static_cast<size_t>(config.workers) + static_cast<size_t>(config.spare_workers),
      group->clock_.Now());
  group->thread_ = std::thread([own = group.get()] { own->Main(); });
  Lock lock(group->mutex_);
  const std::function<bool()>& interrupted = group->options_.interrupted;
  while (!group->loaded_) {
    if (group->loaded_changed_.wait_for(lock, kAskInterrupted) == std::cv_status::no_timeout ||
        interrupted == nullptr || group->loaded_) {
      continue;
    }
    lock.unlock();
    const bool ends = interrupted();
    if (ends) group->End();
    lock.lock();
    if (ends && !group->loaded_) group->loaded_ = absl::CancelledError("it was interrupted");
  }
  const Status loaded = *group->loaded_;
  lock.unlock();
  CHAIRLIFT_RETURN_IF_ERROR(loaded);
  return group;
}

WorkerGroup::~WorkerGroup() {
  if (thread_.joinable()) {
    {
      const Lock lock(mutex_);
      stopping_ = true;
    }
    Wake();
    thread_.join();
  }
  for (const auto& [id, worker] : workers_) worker->caller->Close();
  workers_.clear();  // before the object that reads their messages
  if (epoll_ >= 0) ::close(epoll_);
  if (wake_ >= 0) ::close(wake_);
}

void WorkerGroup::Wake() const {
  const uint64_t one = 1;
  (void)!::write(wake_, &one, sizeof(one));
}

bool WorkerGroup::Unusable() const {
  if (ending_ || stopping_) return true;
  const bool serving = std::any_of(workers_.begin(), workers_.end(),
                                   [](const auto& entry) { return entry.second->serves(); });
  return !serving && restarts_.looping();
}

Status WorkerGroup::Ready() const {
  const Lock lock(mutex_);
  if (!Unusable()) return absl::OkStatus();
  if (ending_ || stopping_) return Unavailable("its workers have been stopped");
  return Unavailable(
      "{} workers have ended in a row, without an answer in between; the last one {}",
      restarts_.deaths(), last_death_);
}

std::vector<pid_t> WorkerGroup::ProcessIds() const {
  const Lock lock(mutex_);
  std::vector<pid_t> ids;
  for (const auto& [id, worker] : workers_) {
    if (worker->protocol.ready() && !worker->closing) ids.push_back(worker->process->pid());
  }
  return ids;
}

std::shared_ptr<WorkerGroup::Worker> WorkerGroup::FreeWorker(int& slot) {
  std::shared_ptr<Worker> best;
  // Nothing waits behind a stream, which may take long, while another worker is free.
  const int most = signature_.streams ? 1 : options_.config.batches_in_flight;
  for (const auto& [id, worker] : workers_) {
    if (!worker->serves() || worker->load() >= most) continue;
    if (best != nullptr && best->load() <= worker->load()) continue;
    const auto free = std::find_if(worker->slots.begin(), worker->slots.end(),
                                   [](const Slot& s) { return !s.taken; });
    if (free == worker->slots.end()) continue;
    best = worker;
    slot = static_cast<int>(free - worker->slots.begin());
  }
  return best;
}

void WorkerGroup::Submit(std::unique_ptr<FunctionBatch> batch) {
  size_t bytes = 0;
  for (const TensorDesc& input : batch->inputs()) {
    bytes += static_cast<size_t>(input.shape.NumElements()) * DTypeSize(input.dtype);
  }
  std::shared_ptr<Worker> worker;
  int slot = 0;
  bool wake = false;
  {
    const Lock lock(mutex_);
    if (waiting_.empty()) worker = FreeWorker(slot);
    if (worker != nullptr && bytes > kLargeWrite && !OnOwnThread()) {
      worker = nullptr;
      wake = true;
    }
    if (worker != nullptr) {
      worker->slots[static_cast<size_t>(slot)].taken = true;
      ++worker->writing;
    } else {
      waiting_.push_back(std::move(batch));
      wake |= Unusable();
    }
  }
  if (worker != nullptr) return Deliver(worker, slot, std::move(batch));
  if (wake) Wake();
}

void WorkerGroup::DeliverWaiting() {
  while (true) {
    std::shared_ptr<Worker> worker;
    std::unique_ptr<FunctionBatch> batch;
    int slot = 0;
    {
      const Lock lock(mutex_);
      if (waiting_.empty()) return;
      worker = FreeWorker(slot);
      if (worker == nullptr) return;
      batch = std::move(waiting_.front());
      waiting_.pop_front();
      worker->slots[static_cast<size_t>(slot)].taken = true;
      ++worker->writing;
    }
    Deliver(worker, slot, std::move(batch));
  }
}

void WorkerGroup::Deliver(const std::shared_ptr<Worker>& worker, int slot,
                          std::unique_ptr<FunctionBatch> batch) {
  Slot& own = worker->slots[static_cast<size_t>(slot)];  // reserved for this batch
  const TimePoint start = clock_.Now();
  RunMessage run{.slot = static_cast<uint32_t>(slot),
                 .rows = static_cast<uint32_t>(batch->rows()),
                 .inputs = {}};
  absl::InlinedVector<int, 2> passed;
  const Status written = CatchOutOfMemory([&]() -> Status {
    size_t bytes = 0;
    for (const TensorDesc& input : batch->inputs()) {
      run.inputs.push_back({input.dtype, input.shape, bytes});
      bytes += Aligned(static_cast<size_t>(input.shape.NumElements()) * DTypeSize(input.dtype));
    }
    if (own.input == nullptr || own.input->size() < bytes) {
      own.input = nullptr;
      CHAIRLIFT_ASSIGN_OR_RETURN(own.input, SharedRegion::Create(bytes));
      run.input_room = own.input->size();
      passed.push_back(own.input->descriptor());
    }
    if (own.output == nullptr) {
      CHAIRLIFT_ASSIGN_OR_RETURN(own.output, SharedRegion::Create(0));
      run.output_room = own.output->size();
      passed.push_back(own.output->descriptor());
    }
    for (size_t i = 0; i < run.inputs.size(); ++i) {
      batch->Write(i, own.input->data() + run.inputs[i].offset);
    }
    return absl::OkStatus();
  });
  const TimePoint now = clock_.Now();
  bool wake = false;
  {
    const Lock lock(mutex_);
    --worker->writing;
    run.sequence = next_sequence_++;
    const StatusOr<std::string> encoded =
        written.ok() ? Encode(run) : StatusOr<std::string>(written);
    Status sent = encoded.status();
    if (sent.ok() && !worker->dead) {
      sent = worker->process->Send(*encoded, passed);
      // A worker that does not accept a message for which it has room has ended, which is detected
      // soon.
      if (!sent.ok()) {
        worker->deaf = true;
        worker->process->Kill();
      }
    }
    for (SharedRegion* region : {own.input.get(), own.output.get()}) {
      if (region != nullptr) region->CloseDescriptor();
    }
    if (!encoded.ok()) {
      ended_.push_back({std::move(batch), FunctionBatch::Failure::kNever, encoded.status(), {}});
      own.taken = false;
      if (!passed.empty()) own = Slot();  // it does not know the regions
      wake = true;
    } else if (!sent.ok() || worker->dead) {
      waiting_.push_front(std::move(batch));
      own.taken = false;
      wake = true;
    } else {
      if (worker->in_flight.empty()) worker->front_begun = worker->front_since = now;
      worker->protocol.Begin({.sequence = run.sequence,
                              .rows = batch->rows(),
                              .tokens = batch->tokens(),
                              .output_room = own.output->size()});
      worker->in_flight.push_back(
          {.batch = std::move(batch), .slot = slot, .sent = now, .times = {.write = now - start}});
    }
  }
  if (wake) Wake();
}

void WorkerGroup::FinishEnded() {
  std::vector<Ended> ended;
  {
    const Lock lock(mutex_);
    ended.swap(ended_);
    if (Unusable()) {
      const Status why =
          ending_ || stopping_
              ? Unavailable("the function's workers have been stopped")
              : Unavailable(
                    "{} workers have ended in a row, without an answer in between; the "
                    "last one {}",
                    restarts_.deaths(), last_death_);
      for (std::unique_ptr<FunctionBatch>& batch : waiting_) {
        ended.push_back({std::move(batch), FunctionBatch::Failure::kNever, why, {}});
      }
      waiting_.clear();
    }
  }
  for (Ended& one : ended) one.batch->Done(one.failure, std::move(one.status), one.times);
}

void WorkerGroup::End() {
  {
    const Lock lock(mutex_);
    ending_ = true;
    for (const auto& [id, worker] : workers_) worker->process->Kill();
  }
  Wake();
}

}  // namespace chairlift
