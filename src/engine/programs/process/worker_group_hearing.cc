// The thread of a group: reads the workers' messages and acts on them.
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/memory_reserve.h"
#include "base/out_of_memory.h"
#include "base/status.h"
#include "engine/programs/process/worker_group.h"

namespace chairlift {
namespace {

// How long the thread polls for the next event before it sleeps, if the last one came within this
// time: about the time of a sleep and its wake-up.
constexpr auto kWatchEvents = std::chrono::microseconds(100);
// How often the load is checked if more workers may be started.
constexpr auto kLookAtBusy = std::chrono::milliseconds(500);
// How often a paused stream is checked.
constexpr auto kAskUnread = std::chrono::milliseconds(5);

bool SameSignature(const WorkerReady& a, const WorkerReady& b) {
  const auto same = [](const std::vector<SymbolicSpec>& x, const std::vector<SymbolicSpec>& y) {
    return std::equal(
        x.begin(), x.end(), y.begin(), y.end(), [](const SymbolicSpec& p, const SymbolicSpec& q) {
          return p.name == q.name && p.dtype == q.dtype && p.shape.ToString() == q.shape.ToString();
        });
  };
  return same(a.inputs, b.inputs) && same(a.outputs, b.outputs) &&
         a.ragged_inputs == b.ragged_inputs && a.ragged_outputs == b.ragged_outputs &&
         a.own_offsets == b.own_offsets && a.streams == b.streams;
}

// The tensors at the places that a worker reported.
std::vector<Tensor> PlacedIn(const SharedRegion& region, const std::vector<PlacedTensor>& outputs) {
  std::vector<Tensor> tensors;
  tensors.reserve(outputs.size());
  for (const PlacedTensor& output : outputs) {
    tensors.push_back(Tensor::Wrap(output.dtype, output.shape, region.data() + output.offset));
  }
  return tensors;
}

}  // namespace

void WorkerGroup::Call(const std::shared_ptr<Worker>& worker, const WorkerCall& call) {
  const SharedRegion* region = nullptr;
  std::optional<TimePoint> deadline;
  {
    const Lock lock(mutex_);
    const InFlight& front = worker->in_flight.front();  // it stays: only this thread removes it
    region = worker->slots[static_cast<size_t>(front.slot)].output.get();
    deadline = front.batch->deadline();
  }
  worker->caller->Begin(call, *region, deadline);
}

void WorkerGroup::TakePart(const std::shared_ptr<Worker>& worker, const WorkerPart& part) {
  FunctionBatch* batch = nullptr;
  const SharedRegion* region = nullptr;
  {
    const Lock lock(mutex_);
    const InFlight& front = worker->in_flight.front();  // it stays: only this thread removes it
    if (!front.cancelled.ok())
      // The worker does not know of the cancellation yet.
      return;
    batch = front.batch.get();
    region = worker->slots[static_cast<size_t>(front.slot)].output.get();
    worker->front_since = clock_.Now();  // it is working
  }
  batch->TakePart(PlacedIn(*region, part.outputs));
}

void WorkerGroup::Answer(const std::shared_ptr<Worker>& worker, FunctionBatch::Failure failure,
                         Status status, const WorkerResult* result) {
  InFlight own;
  Slot* slot = nullptr;
  const TimePoint heard = clock_.Now();
  worker->caller->CancelAll();  // calls that it did not wait for
  {
    const Lock lock(mutex_);
    own = std::move(worker->in_flight.front());
    worker->in_flight.pop_front();
    own.times.compute = heard - std::max(worker->front_begun, own.sent);
    worker->front_begun = worker->front_since = heard;
    slot = &worker->slots[static_cast<size_t>(own.slot)];
    ++worker->batches;
    restarts_.Computed();
  }
  if (!own.cancelled.ok()) {
    status = own.cancelled;
    failure = FunctionBatch::Failure::kNever;
  } else if (result != nullptr) {
    status = CatchOutOfMemory(
        [&]() -> Status { return own.batch->Take(PlacedIn(*slot->output, result->outputs)); });
    own.times.take = clock_.Now() - heard;
    if (!status.ok()) failure = FunctionBatch::Failure::kNever;
  }
  {
    const Lock lock(mutex_);
    slot->taken = false;
  }
  DeliverWaiting();
  own.batch->Done(failure, std::move(status), own.times);
  CheckWear(*worker);
  CloseIfIdle(*worker);
}

void WorkerGroup::GiveRoom(Worker& worker, uint64_t bytes) {
  Lock lock(mutex_);
  const InFlight& front = worker.in_flight.front();  // it stays: only this thread removes it
  Slot& slot = worker.slots[static_cast<size_t>(front.slot)];
  const size_t most = front.batch->max_output_bytes();
  const bool streams = signature_.streams;
  const bool asks = streams && front.cancelled.ok();
  lock.unlock();
  if (asks && !front.batch->MayGoOn(clock_.Now())) {
    lock.lock();
    worker.held = bytes;
    return;
  }
  const bool as_before = streams && slot.output->size() >= bytes;
  std::unique_ptr<SharedRegion> region;
  if (!as_before && bytes <= most) {
    StatusOr<std::unique_ptr<SharedRegion>> made =
        CatchOutOfMemory([&] { return SharedRegion::Create(bytes); });
    if (made.ok()) region = *std::move(made);
  }
  lock.lock();
  absl::InlinedVector<int, 1> passed;
  if (region != nullptr) {
    slot.output = std::move(region);
    passed.push_back(slot.output->descriptor());
  }
  worker.held.reset();
  worker.front_since = clock_.Now();  // it may have waited
  const size_t room = passed.empty() && !as_before ? 0 : slot.output->size();
  worker.protocol.Grant(room);
  if (!worker.process->Send(EncodeRoom(room), passed).ok()) worker.process->Kill();
  if (slot.output != nullptr) slot.output->CloseDescriptor();
}

void WorkerGroup::GiveHeld() {
  std::vector<std::shared_ptr<Worker>> held;
  {
    const Lock lock(mutex_);
    for (const auto& [id, worker] : workers_) {
      if (worker->held && !worker->dead) held.push_back(worker);
    }
  }
  for (const std::shared_ptr<Worker>& worker : held) GiveRoom(*worker, *worker->held);
}

void WorkerGroup::Cancel(Worker& worker, InFlight& batch, Status why) {
  batch.cancelled = std::move(why);
  batch.cancelled_at = clock_.Now();
  const uint64_t sequence =
      worker.protocol.in_flight()[static_cast<size_t>(&batch - &worker.in_flight.front())].sequence;
  if (!worker.process->Send(EncodeCancel(sequence), {}).ok()) worker.process->Kill();
}

void WorkerGroup::CancelDue() {
  const Lock lock(mutex_);
  const TimePoint now = clock_.Now();
  const auto nobody = [] { return absl::CancelledError("nobody waits for it any more"); };
  for (const auto& [id, worker] : workers_) {
    if (worker->dead || worker->hung_up) continue;
    for (size_t i = 0; i < worker->in_flight.size(); ++i) {
      InFlight& own = worker->in_flight[i];
      if (!own.cancelled.ok()) continue;
      if (!own.batch->wanted()) {
        Cancel(*worker, own, nobody());
        continue;
      }
      for (const CancelledRows& rows : own.batch->TakeLeft()) {
        const uint64_t sequence = worker->protocol.in_flight()[i].sequence;
        if (!worker->process->Send(EncodeCancel(sequence, rows), {}).ok()) worker->process->Kill();
      }
      if (i == 0 && StreamDeadlineOf(*worker) <= now) {
        Cancel(*worker, own,
               DeadlineExceeded("the stream took longer than {} s (stream_timeout_us)",
                                static_cast<double>(options_.config.stream_timeout_us) * 1e-6));
      }
    }
  }
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    if ((*at)->wanted()) {
      ++at;
      continue;
    }
    ended_.push_back({std::move(*at), FunctionBatch::Failure::kNever, nobody(), {}});
    at = waiting_.erase(at);
  }
}

void WorkerGroup::HearOne(const std::shared_ptr<Worker>& worker, WorkerMessage message) {
  if (std::holds_alternative<WorkerReady>(message)) {
    if (!signature_.outputs.empty() && !SameSignature(signature_, std::get<WorkerReady>(message))) {
      return Lose(worker, "loaded a function of another signature");
    }
    BecomeReady(*worker);
  } else if (const auto* failed_load = std::get_if<WorkerLoadFailed>(&message)) {
    Lose(worker, "could not load the function:\n" + failed_load->why);
  } else if (const auto* result = std::get_if<WorkerResult>(&message)) {
    Answer(worker, FunctionBatch::Failure::kNone, absl::OkStatus(), result);
  } else if (const auto* call = std::get_if<WorkerCall>(&message)) {
    Call(worker, *call);
  } else if (const auto* part = std::get_if<WorkerPart>(&message)) {
    TakePart(worker, *part);
  } else if (const auto* failed = std::get_if<WorkerFailed>(&message)) {
    Answer(worker, FunctionBatch::Failure::kRaised,
           failed->refused ? InvalidArgument("{}", failed->why) : Internal("{}", failed->why),
           nullptr);
  } else {
    GiveRoom(*worker, std::get<WorkerNeedsRoom>(message).bytes);
  }
}

void WorkerGroup::Hear(const std::shared_ptr<Worker>& worker) {
  while (!worker->dead && !worker->hung_up) {
    const StatusOr<std::span<const std::byte>> bytes = worker->process->Receive();
    if (!bytes.ok() && worker->process->ended() < 0) return Lose(worker, "");
    if (!bytes.ok()) {
      // It is about to end and will report why: it need not be killed.
      ::epoll_ctl(epoll_, EPOLL_CTL_DEL, worker->process->socket(), nullptr);
      const Lock lock(mutex_);
      if (!worker->closed) worker->deadline = clock_.Now() + kTimeToEnd;
      worker->hung_up = true;
      return;
    }
    if (bytes->empty()) return;
    StatusOr<WorkerMessage> message = CatchOutOfMemory([&] {
      const Lock lock(mutex_);
      return worker->protocol.Receive(*bytes);
    });
    if (!message.ok()) {
      worker->process->Kill();
      return Lose(worker, "broke the protocol: " + Message(message.status()));
    }
    HearOne(worker, *std::move(message));
  }
}

void WorkerGroup::Log(Worker& worker) {
  for (const WorkerProcess::Line& line : worker.process->ReadOutput()) {
    spdlog::log(line.error ? spdlog::level::err : spdlog::level::info, "{}: worker {}: {}",
                options_.name, worker.id, line.text);
  }
}

int WorkerGroup::WaitMs() const {
  const Lock lock(mutex_);
  const TimePoint now = clock_.Now();
  // Threads that submit a batch need not wake this one: its deadline is not before this.
  TimePoint wake = now + std::chrono::microseconds(options_.config.batch_timeout_us);
  for (const TimePoint start : starts_) wake = std::min(wake, start);
  // Another thread may have made the workers busy without waking this one.
  if (wanted_ < options_.config.max_workers) {
    wake = std::min<TimePoint>(wake, now + kLookAtBusy);
  }
  for (const auto& [id, worker] : workers_) {
    wake = std::min({wake, DeadlineOf(*worker), StreamDeadlineOf(*worker)});
    if (worker->held) wake = std::min<TimePoint>(wake, now + kAskUnread);
  }
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(wake - now).count();
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 60'000));
}

int WorkerGroup::Await(std::span<epoll_event> events) {
  const auto wait = [&](int ms) {
    return ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), ms);
  };
  const TimePoint begin = clock_.Now();
  int count = wait(0);
  while (count == 0 && watches_ && clock_.Now() - begin < kWatchEvents) {
    std::this_thread::yield();
    count = wait(0);
  }
  if (count == 0) count = wait(WaitMs());
  watches_ = count > 0 && clock_.Now() - begin < kWatchEvents;
  return count;
}

void WorkerGroup::Main() {
  const MemoryReserve::Use use;
  std::array<epoll_event, 16> events;
  while (true) {
    bool stopping = false;
    {
      const Lock lock(mutex_);
      if (ending_) {
        for (const auto& [id, worker] : workers_) worker->process->Kill();
      }
      stopping = stopping_;
      if (stopping && workers_.empty()) break;
      if (stopping) {
        for (const auto& [id, worker] : workers_) worker->closing = true;
      }
    }
    if (stopping) {
      for (const auto& [id, worker] : workers_) CloseIfIdle(*worker);
    }
    Resize();
    StartDue();
    CancelDue();
    GiveHeld();
    FinishEnded();
    DeliverWaiting();
    const int count = Await(events);
    for (int i = 0; i < count; ++i) {
      const uint64_t event = events[static_cast<size_t>(i)].data.u64;
      if (event == kWakeEvent) {
        uint64_t wakes = 0;
        (void)!::read(wake_, &wakes, sizeof(wakes));
        continue;
      }
      const auto found = workers_.find(event >> 2);  // changed on this thread only
      if (found == workers_.end()) continue;
      const std::shared_ptr<Worker> worker = found->second;
      switch (static_cast<Source>(event & 3)) {
        case Source::kOutput:
          Log(*worker);
          if ((events[static_cast<size_t>(i)].events & EPOLLHUP) != 0) {
            // Nothing writes there any more; the end of the process is detected separately.
            ::epoll_ctl(epoll_, EPOLL_CTL_DEL, worker->process->output(), nullptr);
          }
          break;
        case Source::kSocket:
          Hear(worker);
          break;
        case Source::kProcess:
          Hear(worker);  // earlier messages
          if (!worker->dead) Lose(worker, "");
          break;
      }
    }
    KillOverdue();
  }
  FinishEnded();
}

}  // namespace chairlift
