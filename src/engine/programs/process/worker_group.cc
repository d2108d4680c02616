#include "engine/programs/process/worker_group.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/memory_reserve.h"
#include "base/out_of_memory.h"
#include "base/status.h"
#include "engine/programs/process/worker_script.h"

namespace chairlift {
namespace {

constexpr uint64_t kWakeEvent = 0;
constexpr size_t kRegionAlign = 64;
// More is written by the group's thread: whoever submits may be a network thread.
constexpr size_t kLargeWrite = size_t{1} << 20;
constexpr auto kTimeToEnd = std::chrono::seconds(2);
// How often a worker's memory is looked at: batches.
constexpr int64_t kBatchesBetweenChecks = 64;

// How long the thread looks for the next event before it sleeps, where the last came so soon: about
// what a sleep and the wake-up from it take.
constexpr auto kWatchEvents = std::chrono::microseconds(100);

enum class Source : uint64_t { kSocket = 0, kOutput = 1, kProcess = 2 };

uint64_t EventOf(uint64_t worker, Source source) {
  return worker << 2 | static_cast<uint64_t>(source);
}

size_t Aligned(size_t bytes) { return (bytes + kRegionAlign - 1) / kRegionAlign * kRegionAlign; }

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

std::string PythonOf(const FunctionConfig& config) {
  if (!config.python_executable.empty()) return config.python_executable;
  const char* const from_environment = std::getenv("CHAIRLIFT_PYTHON");
  return from_environment != nullptr && *from_environment != '\0' ? from_environment : "python3";
}

// Where a worker put them.
std::vector<Tensor> PlacedIn(const SharedRegion& region, const std::vector<PlacedTensor>& outputs) {
  std::vector<Tensor> tensors;
  for (const PlacedTensor& output : outputs) {
    tensors.push_back(Tensor::Wrap(output.dtype, output.shape, region.data() + output.offset));
  }
  return tensors;
}

}  // namespace

WorkerGroup::WorkerGroup(Options options)
    : options_(std::move(options)), restarts_(options_.config.workers) {}

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
  group->loaded_changed_.wait(lock, [&] { return group->loaded_.has_value(); });
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
  workers_.clear();  // before what hears them
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
  for (const auto& [id, worker] : workers_) {
    if (!worker->serves() || worker->load() >= options_.config.batches_in_flight) continue;
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
  Slot& own = worker->slots[static_cast<size_t>(slot)];  // nobody else's while it is taken
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
      // A worker that does not take what it has room for has ended, which is soon heard of.
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
      if (!passed.empty()) own = Slot();  // it does not know of them
      wake = true;
    } else if (!sent.ok() || worker->dead) {
      waiting_.push_front(std::move(batch));
      own.taken = false;
      wake = true;
    } else {
      if (worker->in_flight.empty()) worker->front_since = now;
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

Status WorkerGroup::StartWorker() {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::filesystem::path script, FindWorkerScript());
  CHAIRLIFT_ASSIGN_OR_RETURN(std::unique_ptr<WorkerProcess> process,
                             WorkerProcess::Start({.python = PythonOf(options_.config),
                                                   .script = script,
                                                   .file = options_.file,
                                                   .function = options_.config.function,
                                                   .argument = options_.config.argument}));
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

void WorkerGroup::BecomeReady(Worker& worker) {
  bool close_worn = false;
  {
    const Lock lock(mutex_);
    if (!loaded_ && signature_.outputs.empty()) signature_ = worker.protocol.signature();
    int serving = 0;
    for (const auto& [id, other] : workers_) {
      serving += other.get() != &worker && other->serves() && !other->worn ? 1 : 0;
    }
    worker.spare = serving >= options_.config.workers;
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
  {
    const Lock lock(mutex_);
    if (std::exchange(worker->dead, true)) return;
    workers_.erase(worker->id);  // nobody else kills a process whose number may be another's
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
      // Those behind the first were not begun: they go to another worker.
      for (size_t i = 1; i < worker->in_flight.size(); ++i) {
        waiting_.insert(waiting_.begin() + static_cast<ptrdiff_t>(i) - 1,
                        std::move(worker->in_flight[i].batch));
      }
      worker->in_flight.resize(std::min<size_t>(worker->in_flight.size(), 1));
    }
    for (InFlight& own : worker->in_flight) {
      own.times.compute = clock_.Now() - std::max(worker->front_since, own.sent);
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
      const Duration delay = restarts_.Died();
      spdlog::error("{}: worker {} {}; another is started in {} ms", options_.name, worker->id, why,
                    std::chrono::duration_cast<std::chrono::milliseconds>(delay).count());
      if (!worker->worn) starts_.push_back(clock_.Now() + delay);
    }
  }
  FinishEnded();
  DeliverWaiting();
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

void WorkerGroup::Call(const std::shared_ptr<Worker>& worker, const WorkerCall& call) {
  const SharedRegion* region = nullptr;
  std::optional<TimePoint> deadline;
  {
    const Lock lock(mutex_);
    const InFlight& front = worker->in_flight.front();  // it stays: only this thread ends it
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
    const InFlight& front = worker->in_flight.front();  // it stays: only this thread ends it
    batch = front.batch.get();
    region = worker->slots[static_cast<size_t>(front.slot)].output.get();
    worker->front_since = clock_.Now();  // it works
  }
  batch->TakePart(PlacedIn(*region, part.outputs));
}

void WorkerGroup::Answer(const std::shared_ptr<Worker>& worker, FunctionBatch::Failure failure,
                         Status status, const WorkerResult* result) {
  InFlight own;
  Slot* slot = nullptr;
  const TimePoint heard = clock_.Now();
  worker->caller->CancelAll();  // what it did not wait for
  {
    const Lock lock(mutex_);
    own = std::move(worker->in_flight.front());
    worker->in_flight.pop_front();
    own.times.compute = heard - std::max(worker->front_since, own.sent);
    worker->front_since = heard;
    slot = &worker->slots[static_cast<size_t>(own.slot)];
    ++worker->batches;
    restarts_.Computed();
  }
  if (result != nullptr) {
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

void WorkerGroup::CheckWear(Worker& worker) {
  const FunctionConfig& config = options_.config;
  if (worker.worn) return;
  const char* why = nullptr;
  if (config.restart_after_batches > 0 && worker.batches >= config.restart_after_batches) {
    why = "has computed restart_after_batches";
  } else if (config.restart_after_bytes > 0 && worker.batches % kBatchesBetweenChecks == 1 &&
             worker.process->ResidentBytes() >= config.restart_after_bytes) {
    why = "has restart_after_bytes of memory";
  }
  if (why == nullptr) return;
  spdlog::info("{}: worker {} {}; another takes its place", options_.name, worker.id, why);
  const Lock lock(mutex_);
  worker.worn = true;
  starts_.push_back(clock_.Now());
}

void WorkerGroup::GiveRoom(Worker& worker, uint64_t bytes) {
  Lock lock(mutex_);
  const InFlight& front = worker.in_flight.front();
  Slot& slot = worker.slots[static_cast<size_t>(front.slot)];
  const size_t most = front.batch->max_output_bytes();
  lock.unlock();
  std::unique_ptr<SharedRegion> region;
  if (bytes <= most) {
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
  const size_t room = passed.empty() ? 0 : slot.output->size();
  worker.protocol.Grant(room);
  if (!worker.process->Send(EncodeRoom(room), passed).ok()) worker.process->Kill();
  if (slot.output != nullptr) slot.output->CloseDescriptor();
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
      // It is about to end, and will say how: it need not be killed for that.
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
  for (const std::string& line : worker.process->ReadOutput()) {
    spdlog::info("{}: worker {}: {}", options_.name, worker.id, line);
  }
}

TimePoint WorkerGroup::DeadlineOf(const Worker& worker) const {
  if (worker.closed || worker.hung_up || !worker.protocol.ready()) return worker.deadline;
  if (worker.in_flight.empty()) return TimePoint::max();
  return worker.front_since + std::chrono::microseconds(options_.config.batch_timeout_us);
}

std::string WorkerGroup::WhyOverdue(const Worker& worker) const {
  if (worker.closed || worker.hung_up) return "did not end";
  if (!worker.protocol.ready()) {
    return fmt::format("did not load the function in {} s (load_timeout_us)",
                       static_cast<double>(options_.config.load_timeout_us) * 1e-6);
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

int WorkerGroup::WaitMs() const {
  const Lock lock(mutex_);
  const TimePoint now = clock_.Now();
  // Nobody who submits a batch has to wake the thread: its deadline is not before this.
  TimePoint wake = now + std::chrono::microseconds(options_.config.batch_timeout_us);
  for (const TimePoint start : starts_) wake = std::min(wake, start);
  for (const auto& [id, worker] : workers_) wake = std::min(wake, DeadlineOf(*worker));
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(wake - now).count();
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 60'000));
}

void WorkerGroup::End() {
  {
    const Lock lock(mutex_);
    ending_ = true;
    for (const auto& [id, worker] : workers_) worker->process->Kill();
  }
  Wake();
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
    StartDue();
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
            // Nobody writes there any more: whether it has ended is heard otherwise.
            ::epoll_ctl(epoll_, EPOLL_CTL_DEL, worker->process->output(), nullptr);
          }
          break;
        case Source::kSocket:
          Hear(worker);
          break;
        case Source::kProcess:
          Hear(worker);  // what it said before
          if (!worker->dead) Lose(worker, "");
          break;
      }
    }
    KillOverdue();
  }
  FinishEnded();
}

}  // namespace chairlift
