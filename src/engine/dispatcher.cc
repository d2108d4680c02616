#include "engine/dispatcher.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/status.h"

namespace chairlift {
namespace {

// A task expected to take less is run by its own worker alone: waking others, and having them watch
// for parts, takes longer than they would save and takes their cores from whoever is to read the
// answer.
constexpr Duration kWorthATeam = std::chrono::microseconds(50);

// The least for a task that follows another on its worker without a pause: the others still watch.
constexpr Duration kWorthATeamInAChain = std::chrono::microseconds(5);

constexpr CellType kNoType = ~CellType{0};

// Nodes from which on a request's graph is made ready before the lock is taken: it takes up to
// 0.1 µs a node, in which nobody else would get an answer.
constexpr int32_t kLargeGraph = 1024;

}  // namespace

Dispatcher::Dispatcher(WorkerPool& pool, int max_requests)
    : pool_(pool), max_requests_(max_requests) {
  for (int i = pool.size() - 1; i >= 0; --i) idle_.push_back(i);
  for (int i = 0; i < pool.size(); ++i) workers_.push_back(std::make_unique<WorkerState>());
  timer_ = std::thread([this] { TimerMain(); });
}

Dispatcher::~Dispatcher() { Stop(std::chrono::milliseconds(0)); }

Status Dispatcher::Admit(const Request& request) const {
  if (refusing_) return Unavailable("the engine is shutting down");
  if (static_cast<int>(requests_.size()) >= max_requests_) {
    return ResourceExhausted("{} requests are waiting or running, the engine's limit; retry later",
                             max_requests_);
  }
  const int limit = request.model->metadata().config.max_queue_size;
  if (request.model->lane().scheduler->waiting() >= limit) {
    return ResourceExhausted("{} requests wait for model '{}', its max_queue_size; retry later",
                             limit, request.model->metadata().name);
  }
  return absl::OkStatus();
}

void Dispatcher::SetDeadline(Request& request) {
  const int64_t fallback = request.model->metadata().config.default_timeout_us;
  if (!request.timeout && fallback > 0) request.timeout = std::chrono::microseconds(fallback);
  if (!request.timeout) return;
  // Past a year is never; so far ahead, the sum below might overflow.
  constexpr std::chrono::microseconds kNever = std::chrono::hours(24 * 365);
  if (*request.timeout >= kNever) return;
  request.deadline = request.arrival + std::max(*request.timeout, std::chrono::microseconds(0));
}

RequestId Dispatcher::Submit(std::unique_ptr<Request> owned) {
  Request* request = owned.get();
  request->arrival = clock_.Now();
  SetDeadline(*request);
  Actions actions;
  RequestId number = 0;
  Status refused;
  CellGraph graph;
  std::unique_ptr<PreparedGraph> prepared;
  {
    Lock lock(mutex_, std::defer_lock);
    const bool large = request->cells != nullptr && request->cells->num_nodes() >= kLargeGraph;
    if (large) {
      graph = GraphOf(*request, lock);
      prepared = request->model->lane().scheduler->Prepare(graph);
    }
    lock.lock();
    number = next_number_++;
    refused = Admit(*request);
    if (!refused.ok()) ReleaseTypes(*request);
    if (refused.ok()) {
      request->number = number;
      teller_.Accept(*request);
      requests_.emplace(number, std::move(owned));
      Model::Lane& lane = request->model->lane();
      ++lane.requests;
      Activate(request->model);
      teller_.SendParts(*request, actions.answers);
      if (request->cells != nullptr && request->cells->done()) {
        Finish(request, CellAnswer(*request, request->arrival), actions);  // sequences of no length
      } else {
        if (!large) graph = GraphOf(*request, lock);
        if (prepared != nullptr) {
          lane.scheduler->ArrivePrepared(number, graph, std::move(prepared), request->client,
                                         request->arrival, request->deadline);
        } else {
          lane.scheduler->Arrive(number, graph, request->client, request->arrival,
                                 request->deadline);
        }
      }
      Pump(request->arrival, actions);
    }
  }
  if (!refused.ok()) {
    request->model->statistics().Failed(
        refused.code() == absl::StatusCode::kUnavailable ? "shutdown" : "queue_full", Duration(0));
    request->callback(std::move(refused));
    return number;
  }
  Perform(std::move(actions));
  return number;
}

CellType Dispatcher::HoldType(Request& request, NodeId node, Lock& lock) {
  const int cell = request.cells->cell(node);
  const std::span<const int64_t> open = request.cells->open_dims(node);
  if (open.empty() && request.closed[cell] != kNoType) return request.closed[cell];
  const ShapeKey key(open.begin(), open.end());
  if (!open.empty()) {
    const auto found = request.open.find({cell, key});
    if (found != request.open.end()) return found->second;
  }
  const bool locked = lock.owns_lock();
  if (!locked) lock.lock();
  const CellType type = request.model->lane().HoldType(cell, key);
  if (!locked) lock.unlock();
  request.types.push_back(type);
  if (open.empty()) {
    request.closed[cell] = type;
  } else {
    request.open.emplace(std::pair(cell, key), type);
  }
  return type;
}

CellGraph Dispatcher::GraphOf(Request& request, Lock& lock) {
  CellGraph graph;
  if (request.cells == nullptr) {
    request.types.push_back(request.model->lane().HoldType(0, request.fitting.key));
    graph.Add(request.types[0], request.fitting.load());
    if (request.model->ragged() == nullptr) {
      graph.set_length(static_cast<int32_t>(request.fitting.length));
    }
    return graph;
  }
  request.closed.assign(request.model->cells()->cells.size(), kNoType);
  for (NodeId node = 0; node < request.cells->num_nodes(); ++node) {
    graph.Add(HoldType(request, node, lock), request.cells->rows(node),
              request.cells->dependencies(node));
  }
  request.known = request.cells->num_nodes();
  return graph;
}

void Dispatcher::Cancel(RequestId number) {
  const Lock lock(mutex_);
  const auto found = requests_.find(number);
  if (found == requests_.end()) return;
  Request* request = found->second.get();
  const TimePoint now = clock_.Now();
  if (!request->model->lane().scheduler->Cancel(number, now)) {
    request->leaving = absl::CancelledError("the request was cancelled");
    return;
  }
  // Told by the timer's thread: the caller may hold locks that the callback takes. What may follow
  // (a client's next request becomes free to start) is done there too.
  FinishWaiting(request, absl::CancelledError("the request was cancelled"), "cancelled", now,
                for_timer_);
  timer_due_ = true;
  timer_wakes_.notify_one();
}

void Dispatcher::Activate(const std::shared_ptr<Model>& model) {
  Model::Lane& lane = model->lane();
  if (lane.active) return;
  lane.active = true;
  // Time in which it asked for nothing is not owed to it: it starts level with the model that has
  // been charged least of those at work, or, where none is, that has been charged most.
  Duration level = most_used_;
  for (const std::shared_ptr<Model>& other : active_) level = std::min(level, other->lane().used);
  lane.used = std::max(lane.used, level);
  active_.push_back(model);
}

void Dispatcher::ReleaseTypes(Request& request) {
  for (const CellType type : request.types) request.model->lane().ReleaseType(type);
  request.types.clear();
}

void Dispatcher::Finish(Request* request, StatusOr<InferResponse> value, Actions& actions) {
  ReleaseTypes(*request);
  --request->model->lane().requests;
  teller_.End(*request, std::move(value), actions.answers);
  const auto found = requests_.find(request->number);
  actions.ended.push_back(std::move(found->second));
  requests_.erase(found);
}

void Dispatcher::FinishWaiting(Request* request, Status status, const std::string& reason,
                               TimePoint now, Actions& actions) {
  StatisticsRecorder& statistics = request->model->statistics();
  statistics.Failed(reason, now - request->arrival);
  if (request->start && request->cells != nullptr) statistics.AddRunning(-1);
  Finish(request, std::move(status), actions);
}

std::shared_ptr<Dispatcher::Batch> Dispatcher::NextBatch(WorkerId worker, TimePoint now) {
  // The model that has been charged least goes first.
  std::sort(active_.begin(), active_.end(),
            [](const auto& a, const auto& b) { return a->lane().used < b->lane().used; });
  for (const std::shared_ptr<Model>& model : active_) {
    Model::Lane& lane = model->lane();
    std::optional<Task> task = lane.scheduler->Next(worker, now);
    if (!task) continue;
    auto batch = std::make_shared<Batch>();
    for (const NodeRef& node : task->nodes) {
      Request* request = requests_.at(node.request).get();
      if (!request->start) {
        request->start = now;
        if (request->cells != nullptr) model->statistics().AddRunning(1);
      }
      request->widest = std::max(request->widest, task->rows);
      batch->requests.push_back(request);
    }
    if (model->forms() != nullptr) {  // who rides alone counts as more rows than it brings
      task->rows = 0;
      for (const Request* request : batch->requests) task->rows += request->fitting.rows;
    }
    batch->model = model;
    batch->cell = lane.cell(task->type);
    batch->task = *std::move(task);
    batch->charged = lane.ExpectedCost(batch->task);
    lane.used += batch->charged;
    return batch;
  }
  return nullptr;
}

void Dispatcher::Pump(TimePoint now, Actions& actions) {
  for (const std::shared_ptr<Model>& model : active_) {
    for (BatchRequestId number : model->lane().scheduler->TakeExpired(now)) {
      Request* request = requests_.at(number).get();
      FinishWaiting(request,
                    request->start
                        ? DeadlineExceeded("the deadline passed while the request ran")
                        : DeadlineExceeded("the deadline passed while the request waited"),
                    "timeout", now, actions);
    }
  }
  while (!idle_.empty()) {
    std::shared_ptr<Batch> batch = NextBatch(idle_.back(), now);
    if (batch == nullptr) break;
    idle_.pop_back();
    actions.batches.push_back(std::move(batch));
  }
  Settle(now, actions);
}

void Dispatcher::Settle(TimePoint now, Actions& actions) {
  int waiting = 0;
  std::optional<TimePoint> wake;
  for (size_t i = 0; i < active_.size();) {
    Model& model = *active_[i];
    const int here = model.lane().scheduler->waiting();
    model.statistics().SetWaiting(here);
    if (model.lane().requests == 0) {
      model.lane().active = false;
      actions.released.push_back(std::move(active_[i]));
      active_[i] = std::move(active_.back());
      active_.pop_back();
      continue;
    }
    waiting += here;
    const std::optional<TimePoint> at = model.lane().scheduler->WakeAt(now);
    if (at && (!wake || *at < *wake)) wake = at;
    ++i;
  }
  waiting_ = waiting;
  // A timer that is set too early looks, finds nothing, and sets itself right.
  if (wake && (!armed_ || *wake < *armed_)) {
    armed_ = wake;
    timer_wakes_.notify_one();
  }
}

void Dispatcher::Perform(Actions actions) {
  for (std::shared_ptr<Batch>& batch : actions.batches) {
    const WorkerId worker = batch->task.worker;
    const bool taken = pool_.Submit(
        worker, [this, batch = std::move(batch)](int index) { RunOnWorker(batch, index); });
    assert(taken);  // a worker without a task has an empty queue
    (void)taken;
  }
  teller_.Tell(std::move(actions.answers));
}

void Dispatcher::Record(const Batch& batch, TimePoint start, TimePoint end) {
  if (!trace_.on()) return;
  static const std::string kWhole;
  const Model& model = *batch.model;
  trace_.Record({.model = model.metadata().name,
                 .cell = model.cells() == nullptr
                             ? kWhole
                             : model.cells()->cells[static_cast<size_t>(batch.cell)]->name(),
                 .task = batch.task,
                 .helped = batch.helped,
                 .start = start,
                 .end = end});
}

bool Dispatcher::WorthSharing(const Batch& batch, Duration worth_a_team) const {
  // Where somebody waits nobody will be idle, and a job cut into parts takes some % longer.
  return batch.charged >= worth_a_team && (batch.task.by_team || waiting_.load() == 0);
}

std::vector<StatusOr<InferResponse>> Dispatcher::Compute(Batch& batch, int worker,
                                                         Duration& compute) {
  Model& model = *batch.model;
  const TimePoint start = clock_.Now();
  WorkerPool::TeamLease lease = pool_.OpenTeam(worker, WorthSharing(batch, kWorthATeam));
  BatchResult result = RunBatch(model, batch.requests, lease.team(), worker,
                                workers_[static_cast<size_t>(worker)]->memory);
  const TimePoint end = clock_.Now();
  compute = end - start;
  int rows = 0;  // the task's may be tokens
  for (const Request* request : batch.requests) rows += request->fitting.rows;
  model.statistics().Executed(rows, 0, result.compute_infer);
  batch.helped = lease.helped();
  Record(batch, start, end);

  std::vector<StatusOr<InferResponse>> answers;
  for (size_t i = 0; i < batch.requests.size(); ++i) {
    Request& request = *batch.requests[i];
    if (!result.outputs[i].ok()) {
      answers.emplace_back(result.outputs[i].status());
      model.statistics().Failed("error", end - request.arrival);
      continue;
    }
    InferResponse response;
    response.model = model.metadata().name;
    response.version = model.metadata().version;
    response.id = std::move(request.id);
    response.outputs = *std::move(result.outputs[i]);
    response.queue_time = start - request.arrival;
    response.compute_time = compute;
    response.batch_rows = rows;
    answers.emplace_back(std::move(response));
    model.statistics().Succeeded(request.fitting.rows, {.queue = start - request.arrival,
                                                        .compute_input = result.compute_input,
                                                        .compute_infer = result.compute_infer,
                                                        .compute_output = result.compute_output,
                                                        .total = end - request.arrival});
  }
  return answers;
}

void Dispatcher::RunOnWorker(std::shared_ptr<Batch> batch, int worker) {
  if (batch->model->cells() == nullptr) return RunWhole(*batch, worker);
  {
    const Lock lock(mutex_);
    LoadCells(*batch, worker);
  }
  Duration worth = kWorthATeam;
  while (true) {
    Actions next = RunCells(*batch, worker, worth);
    batch = TakeOwn(worker, next);
    const bool cells = batch != nullptr && batch->model->cells() != nullptr;
    Perform(std::move(next));
    if (batch == nullptr) return;
    if (!cells) return RunWhole(*batch, worker);
    worth = kWorthATeamInAChain;
  }
}

std::shared_ptr<Dispatcher::Batch> Dispatcher::TakeOwn(int worker, Actions& actions) {
  for (std::shared_ptr<Batch>& batch : actions.batches) {
    if (batch->task.worker != worker) continue;
    std::shared_ptr<Batch> own = std::move(batch);
    std::swap(batch, actions.batches.back());
    actions.batches.pop_back();
    return own;
  }
  return nullptr;
}

void Dispatcher::RunWhole(Batch& batch, int worker) {
  StatisticsRecorder& statistics = batch.model->statistics();
  const auto count = static_cast<int>(batch.requests.size());
  statistics.AddRunning(count);
  Duration compute{0};
  std::vector<StatusOr<InferResponse>> answers = Compute(batch, worker, compute);
  statistics.AddRunning(-count);

  // Answers first: the worker has no room for a new task until their callbacks have returned.
  Actions ended;
  {
    const Lock lock(mutex_);
    // Every request is one node: all of them leave with it.
    batch.model->lane().scheduler->Complete(batch.task.id, clock_.Now(), {});
    Charge(batch, compute);
    for (size_t i = 0; i < batch.requests.size(); ++i) {
      Request* request = batch.requests[i];
      if (!request->leaving.ok()) answers[i] = request->leaving;
      Finish(request, std::move(answers[i]), ended);
    }
  }
  Perform(std::move(ended));

  Actions next;
  {
    const Lock lock(mutex_);
    const TimePoint now = clock_.Now();
    idle_.push_back(worker);
    Pump(now, next);
  }
  Perform(std::move(next));
}

void Dispatcher::Charge(const Batch& batch, Duration compute) {
  Model::Lane& lane = batch.model->lane();
  lane.used += compute - batch.charged;
  lane.NoteCost(batch.task, batch.helped, compute);
  most_used_ = std::max(most_used_, lane.used);
}

void Dispatcher::LoadCells(const Batch& batch, int worker) {
  Model& model = *batch.model;
  CellBatch& cells = workers_[static_cast<size_t>(worker)]->cells;
  cells.Begin(*model.cells()->cells[static_cast<size_t>(batch.cell)]);
  for (size_t i = 0; i < batch.requests.size(); ++i) {
    cells.Add(*batch.requests[i]->cells, batch.task.nodes[i].node);
  }
  cells.Pad(batch.task.padding_rows);
}

Dispatcher::Actions Dispatcher::RunCells(Batch& batch, int worker, Duration worth_a_team) {
  Model& model = *batch.model;
  WorkerState& state = *workers_[static_cast<size_t>(worker)];
  CellBatch& cells = state.cells;
  const TimePoint start = clock_.Now();
  {
    WorkerPool::TeamLease lease = pool_.OpenTeam(worker, WorthSharing(batch, worth_a_team));
    cells.Run(lease.team(), worker, state.memory);
    batch.helped = lease.helped();
  }
  const TimePoint end = clock_.Now();
  model.statistics().Executed(batch.task.rows, batch.task.padding_rows, end - start);
  Record(batch, start, end);

  Actions next;
  Lock lock(mutex_);
  for (size_t i = 0; i < batch.requests.size(); ++i) {
    CompleteNode(*batch.requests[i], cells.items()[i], end, next);
  }
  // All nodes first: a request may grow at several.
  std::vector<Scheduler::Growth> grown;
  for (Request* request : batch.requests) AppendGrowth(*request, grown, lock);
  for (BatchRequestId number : model.lane().scheduler->Complete(batch.task.id, end, grown)) {
    Request* request = requests_.at(number).get();
    model.statistics().AddRunning(-1);
    Finish(request, CellAnswer(*request, end), next);
  }
  Charge(batch, end - start);
  idle_.push_back(worker);
  Pump(end, next);
  for (const std::shared_ptr<Batch>& own : next.batches) {
    if (own->task.worker == worker && own->model->cells() != nullptr) LoadCells(*own, worker);
  }
  return next;
}

void Dispatcher::CompleteNode(Request& request, CellBatch::Item& item, TimePoint now,
                              Actions& actions) {
  if (!request.leaving.ok()) return;
  Status status = item.status.ok()
                      ? request.cells->Complete(item.node, std::move(item.outputs), item.first_row)
                      : std::move(item.status);
  if (!status.ok()) {
    request.leaving = std::move(status);
    request.model->lane().scheduler->Cancel(request.number, now);  // it is in flight: it stays
    return;
  }
  teller_.SendParts(request, actions.answers);
}

void Dispatcher::AppendGrowth(Request& request, std::vector<Scheduler::Growth>& grown, Lock& lock) {
  for (; request.known < request.cells->num_nodes(); ++request.known) {
    const NodeId node = request.known;
    grown.push_back({request.number, HoldType(request, node, lock), request.cells->rows(node),
                     request.cells->dependencies(node)});
  }
}

StatusOr<InferResponse> Dispatcher::CellAnswer(Request& request, TimePoint now) {
  const Model& model = *request.model;
  StatisticsRecorder& statistics = request.model->statistics();
  if (!request.leaving.ok()) {
    const bool cancelled = absl::IsCancelled(request.leaving);
    statistics.Failed(cancelled ? "cancelled" : "error", now - request.arrival);
    return request.leaving;
  }
  InferResponse response;
  response.model = model.metadata().name;
  response.version = model.metadata().version;
  response.id = std::move(request.id);
  for (int index : request.fitting.outputs) {
    const Tensor& answer = request.cells->answers()[static_cast<size_t>(index)];
    const std::string& name = model.signature().outputs[static_cast<size_t>(index)].name;
    if (!answer.present()) {
      statistics.Failed("error", now - request.arrival);
      return Internal("output '{}' was not computed", name);
    }
    response.outputs.push_back({name, answer});
  }
  const TimePoint start = request.start.value_or(now);
  response.queue_time = start - request.arrival;
  response.compute_time = now - start;
  response.batch_rows = request.widest;
  statistics.Succeeded(request.fitting.rows, {.queue = start - request.arrival,
                                              .compute_infer = now - start,
                                              .total = now - request.arrival});
  return response;
}

void Dispatcher::TimerMain() {
  Lock lock(mutex_);
  while (true) {
    const auto due = [this] {
      return stopping_ || timer_due_ || (armed_ && clock_.Now() >= *armed_);
    };
    while (!due()) {
      if (armed_) {
        timer_wakes_.wait_until(lock, *armed_);
      } else {
        timer_wakes_.wait(lock);
      }
    }
    if (stopping_) return;
    timer_due_ = false;
    armed_.reset();
    Actions actions = std::exchange(for_timer_, {});
    Pump(clock_.Now(), actions);
    lock.unlock();
    Perform(std::move(actions));
    lock.lock();
  }
}

void Dispatcher::Stop(std::chrono::milliseconds drain) {
  const std::lock_guard<std::mutex> one_at_a_time(stop_mutex_);
  {
    const Lock lock(mutex_);
    refusing_ = true;
    if (!timer_.joinable()) return;
  }
  teller_.WaitUntilAllAreTold(drain);
  Actions actions;
  {
    const Lock lock(mutex_);
    const TimePoint now = clock_.Now();
    std::vector<Request*> all;
    for (const auto& [number, request] : requests_) all.push_back(request.get());
    for (Request* request : all) {
      if (request->start && request->cells == nullptr) continue;
      const Status status = request->start
                                ? Unavailable("the engine shut down while the request ran")
                                : Unavailable("the engine shut down before the request could run");
      if (request->model->lane().scheduler->Cancel(request->number, now)) {
        FinishWaiting(request, status, "shutdown", now, actions);
      } else {
        request->leaving = status;
      }
    }
    Settle(now, actions);
  }
  Perform(std::move(actions));
  teller_.WaitUntilAllAreTold(std::nullopt);
  {
    const Lock lock(mutex_);
    stopping_ = true;
    timer_wakes_.notify_one();
  }
  timer_.join();
}

}  // namespace chairlift
