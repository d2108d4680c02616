#include "engine/execution/dispatcher.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <limits>
#include <utility>

#include "base/memory_reserve.h"
#include "base/prefetch.h"
#include "base/status.h"
#include "tensor/buffer_pool.h"

namespace chairlift {
namespace {

// A slow plugin may occupy one.
constexpr int kUnfoldThreads = 2;
// Memory that was unused for this long is released.
constexpr Duration kReleaseEach = std::chrono::seconds(5);

}  // namespace

Dispatcher::Dispatcher(WorkerPool& pool, const DispatcherOptions& options)
    : pool_(pool), options_(options), models_(pool.size()), unfold_threads_(kUnfoldThreads) {
  // The budget of all tasks together, so that any answer that one task may produce fits.
  constexpr auto kMost = static_cast<size_t>(std::numeric_limits<int64_t>::max());
  const size_t share = std::min(options.max_task_bytes, kMost / static_cast<size_t>(pool.size()));
  const auto answers = std::make_shared<ByteBudget>(static_cast<int64_t>(share) * pool.size());
  for (int i = 0; i < pool.size(); ++i) {
    memory_.push_back(std::make_unique<WorkerMemory>());
    memory_.back()->compute.set_limit(options.max_task_bytes);
    memory_.back()->partial_answers = answers;
  }
  lanes_memory_.compute.set_limit(options.max_task_bytes);
  lanes_memory_.partial_answers = answers;
  timer_ = std::thread([this] { TimerMain(); });
}

Dispatcher::~Dispatcher() { Stop(std::chrono::milliseconds(0)); }

void Dispatcher::NoteWaiting(Model& model) {
  ModelQueue& queue = model.queue();
  const int waiting = queue.scheduler().waiting();
  waiting_ += waiting - std::exchange(queue.waiting, waiting);
  model.statistics().SetWaiting(waiting + queue.unfolding);
}

void Dispatcher::Cancel(RequestId number) {
  const MemoryReserve::Use use;
  for (const std::shared_ptr<Model>& model : models_.All()) {
    Actions actions;
    {
      const Lock lock(model->queue().mutex());
      const auto found = model->queue().requests.find(number);
      if (found == model->queue().requests.end()) continue;
      Request* request = found->second.get();
      const TimePoint now = clock_.Now();
      if (Leave(*request, now)) {
        FinishWaiting(request, absl::CancelledError("the request was cancelled"), "cancelled", now,
                      actions);
        Settle(*model, {}, now, actions);
      } else {
        Abandon(*request, absl::CancelledError("the request was cancelled"), actions);
        if (actions.left.empty()) return;
      }
    }
    // Delivered on the timer's thread, because the caller may hold locks that the callback takes.
    // What follows (a client's next request may start) is done there too.
    // The timer ends only after all requests have been answered.
    (void)GiveToTimer(actions, *model);
    return;
  }
}

bool Dispatcher::GiveToTimer(Actions& actions, Model& model) {
  {
    const std::lock_guard<std::mutex> lock(for_timer_mutex_);
    if (timer_ended_) return false;
    for_timer_.push_back(std::move(actions));
  }
  models_.Wake(model);
  return true;
}

void Dispatcher::ReleaseTypes(Request& request) {
  for (const CellType type : request.types) request.model->queue().ReleaseType(type);
  request.types.clear();
}

void Dispatcher::Finish(Request* request, StatusOr<InferResponse>&& value, Actions& actions) {
  ModelQueue& queue = request->model->queue();
  if (!request->unfolding) ReleaseTypes(*request);
  if (request->start) request->model->statistics().AddRunning(-1, request->inside);
  queue.queue_time().Leave(value.ok(), request->share);
  request->coming.Release();
  for (const std::optional<TimePoint>& by : {request->deadline, request->start_by}) {
    if (by) queue.deadlines.erase({*by, request->number});
  }
  if (!request->answered) sequencer_.End(request->reply, std::move(value), actions.answers);
  const auto found = queue.requests.find(request->number);
  actions.ended.push_back(std::move(found->second));
  queue.requests.erase(found);
  queue.present = std::ssize(queue.requests);
  if (request->has_turn) --queue.turns;
}

void Dispatcher::FinishWaiting(Request* request, Status status, const std::string& reason,
                               TimePoint now, Actions& actions) {
  StatisticsRecorder& statistics = request->model->statistics();
  if (!request->answered) statistics.Failed(reason, now - request->arrival, request->inside);
  if (request->ran) LearnCost(*request, false);
  Finish(request, std::move(status), actions);
}

std::shared_ptr<Dispatcher::Batch> Dispatcher::NextBatch(const std::shared_ptr<Model>& model,
                                                         WorkerId worker, TimePoint now) {
  ModelQueue& queue = model->queue();
  std::optional<Task> task = queue.scheduler().Next(worker, now);
  if (!task) {
    // A user's policy that was just called may have requested another call.
    if (const auto wake = queue.scheduler().WakeAt(now)) models_.WakeBy(*model, *wake);
    return nullptr;
  }
  auto batch = std::make_shared<Batch>();
  batch->requests.reserve(task->nodes.size());
  batch->nodes.reserve(task->nodes.size());
  for (const NodeRef& node : task->nodes) {
    batch->requests.push_back(queue.requests.at(node.request).get());
    Prefetch(batch->requests.back(), sizeof(Request));
  }
  for (size_t i = 0; i < task->nodes.size(); ++i) {
    const NodeRef& node = task->nodes[i];
    Request* request = batch->requests[i];
    if (!request->start) {
      request->start = now;
      model->statistics().AddRunning(1, request->inside);
    }
    request->rides.push_back(&batch->ride);
    ++batch->ride.wanted;
    batch->nodes.push_back({.graph = request->graph.get(),
                            .number = node.request,
                            .node = node.node,
                            .steps = node.steps,
                            .rows = node.rows,
                            .set_back = node.set_back,
                            .deadline = request->deadline,
                            .parts = request->reply.parts.get(),
                            .admission = request->admission,
                            .status = {}});
  }
  batch->model = model;
  batch->cell = queue.cell(task->type);
  batch->task = *std::move(task);
  batch->charged = queue.ExpectedCost(batch->task);
  return batch;
}

void Dispatcher::Pump(const std::shared_ptr<Model>& model, TimePoint now, Actions& actions,
                      std::optional<WorkerId> first) {
  ModelQueue& queue = model->queue();
  for (const BatchRequestId number : queue.scheduler().TakeExpired(now)) {
    FinishLate(queue.requests.at(number).get(), now, actions);
  }
  Expire(*model, now, actions);
  Settle(*model, {}, now, actions);
  if (queue.lanes.tasks > 0) return FillLanes(model, now, actions);
  while (const std::optional<ActiveModels::Search> search = models_.TakeIdle(first)) {
    std::shared_ptr<Batch> batch = NextBatch(model, search->worker, now);
    if (batch == nullptr) {
      if (!models_.BecomeIdle(*search)) actions.searching.push_back(search->worker);
      break;
    }
    Settle(*model, {.may_run = false, .charge = batch->charged}, now, actions);
    actions.batches.push_back(std::move(batch));
  }
}

void Dispatcher::FillLanes(const std::shared_ptr<Model>& model, TimePoint now, Actions& actions) {
  ModelQueue& queue = model->queue();
  while (!queue.free_lanes.empty()) {
    const int begun = queue.lanes.tasks - static_cast<int>(queue.free_lanes.size());
    if (!model->program().BeginsAnother(begun, queue.scheduler().waiting())) break;
    std::shared_ptr<Batch> batch = NextBatch(model, queue.free_lanes.back(), now);
    if (batch == nullptr) break;
    queue.free_lanes.pop_back();
    Settle(*model, {}, now, actions);
    actions.in_lanes.push_back(std::move(batch));
  }
}

std::shared_ptr<Dispatcher::Batch> Dispatcher::FindBatch(WorkerId worker) {
  while (true) {
    ActiveModels::Search search{.worker = worker};
    while (const std::shared_ptr<Model> model = models_.NextToAsk(search)) {
      Actions actions;
      const Lock lock(model->queue().mutex());
      const TimePoint now = clock_.Now();
      std::shared_ptr<Batch> batch = NextBatch(model, worker, now);
      if (batch == nullptr) continue;
      Settle(*model, {.may_run = false, .charge = batch->charged}, now, actions);
      return batch;
    }
    if (models_.BecomeIdle(search)) return nullptr;
  }
}

void Dispatcher::Expire(Model& model, TimePoint now, Actions& actions) {
  auto& deadlines = model.queue().deadlines;
  while (!deadlines.empty() && deadlines.begin()->first <= now) {
    const auto [by, number] = *deadlines.begin();
    Request* request = model.queue().requests.at(number).get();
    deadlines.erase(deadlines.begin());
    if (by != request->deadline) {
      CheckStart(request, now, actions);
      continue;
    }
    if (Leave(*request, now)) {
      FinishLate(request, now, actions);
    } else {
      Abandon(*request, LateStatus(*request), actions);
      AnswerEarly(*request, now, actions);
    }
  }
}

void Dispatcher::CheckStart(Request* request, TimePoint now, Actions& actions) {
  if (request->start) return;
  Model& model = *request->model;
  const Duration longest = MaxWaitForState(model);
  if (!model.queue().scheduler().short_of_state()) {  // it starts with the next task, or soon
    request->start_by = now + longest;
    model.queue().deadlines.emplace(*request->start_by, request->number);
    return;
  }
  (void)Leave(*request, now);  // none of its nodes has started
  FinishWaiting(request,
                ResourceExhausted("a request for model '{}' has waited {} for memory for its keys "
                                  "and values, as long as max_queue_wait allows; retry later",
                                  model.metadata().name, TimeText(now - request->arrival)),
                "queue_full", now, actions);
}

void Dispatcher::FinishLate(Request* request, TimePoint now, Actions& actions) {
  FinishWaiting(request, LateStatus(*request), "timeout", now, actions);
}

void Dispatcher::Abandon(Request& request, Status why, Actions& actions) {
  if (!request.leaving.ok()) return;
  request.leaving = std::move(why);
  ModelQueue& queue = request.model->queue();
  if (queue.lanes.tasks > 0 && !request.rides.empty()) {
    actions.left.push_back(queue.requests.at(request.number));
  }
  for (Ride* ride : request.rides) {
    if (--ride->wanted == 0) ride->stop = true;
  }
  request.rides.clear();
}

bool Dispatcher::Leave(Request& request, TimePoint now) {
  return request.model->queue().scheduler().Cancel(request.number, now);
}

void Dispatcher::End(Request* request, TimePoint now, Actions& actions) {
  if (request->leaving.ok() && IsLate(*request, now)) request->leaving = LateStatus(*request);
  auto answer = [&]() -> StatusOr<InferResponse> {
    if (!request->leaving.ok()) return request->Leaving();
    InferResponse response;
    if (!request->graph->done()) return Internal("it was not computed");
    CHAIRLIFT_ASSIGN_OR_RETURN(response.outputs, request->graph->TakeOutputs());
    response.model = request->model->metadata().name;
    response.version = request->model->metadata().version;
    response.id = std::move(request->id);
    const TimePoint start = request->start.value_or(now);
    response.queue_time = start - request->arrival;
    response.compute_time = now - start;
    response.batch_rows = request->widest;
    return response;
  }();
  if (!request->answered) {
    Outcome& outcome = actions.outcomes.emplace_back();
    outcome.model = request->model;
    if (!answer.ok()) outcome.failure = FailureReason(answer.status());
    outcome.step = request->inside;
    outcome.rows = request->graph->request().rows;
    outcome.times = request->times;
    outcome.times.total = now - request->arrival;
    if (answer.ok()) {
      outcome.times.queue = answer->queue_time;
      outcome.times.compute_infer = std::max(
          answer->compute_time - outcome.times.compute_input - outcome.times.compute_output,
          Duration(0));
    }
  }
  LearnCost(*request, answer.ok());
  Finish(request, std::move(answer), actions);
}

void Dispatcher::AnswerEarly(Request& request, TimePoint now, Actions& actions) {
  // Borrowed inputs may be gone once the callback has run.
  const auto owned = [](const Tensor& input) { return input.owner() != nullptr; };
  const std::vector<Tensor>& inputs = request.graph->request().inputs;
  if (!std::all_of(inputs.begin(), inputs.end(), owned)) return;
  request.model->statistics().Failed(FailureReason(request.leaving), now - request.arrival,
                                     request.inside);
  sequencer_.End(request.reply, request.Leaving(), actions.answers);
  request.answered = true;
}

void Dispatcher::GetOff(Request& request, const Ride& ride) {
  auto& rides = request.rides;
  rides.erase(std::remove(rides.begin(), rides.end(), &ride), rides.end());
}

void Dispatcher::Settle(Model& model, ActiveModels::Change change, TimePoint now,
                        Actions& actions) {
  NoteWaiting(model);
  ModelQueue& queue = model.queue();
  queue.work = queue.queue_time().work();
  queue.begun = queue.lanes.tasks - static_cast<int>(queue.free_lanes.size());
  if (queue.lanes.tasks > 0) {
    change.may_run = false;
    change.charge = Duration(0);
  }
  change.requests = static_cast<int>(queue.requests.size());
  change.wake = queue.scheduler().WakeAt(now);
  if (!queue.deadlines.empty()) {
    const TimePoint first = queue.deadlines.begin()->first;
    change.wake = change.wake ? std::min(*change.wake, first) : first;
  }
  if (std::shared_ptr<Model> released = models_.Note(model, change)) {
    actions.released = std::move(released);
  }
}

void Dispatcher::Start(std::shared_ptr<Batch> batch) {
  const WorkerId worker = batch->task.worker;
  const bool taken = pool_.Submit(
      worker, [this, batch = std::move(batch)](int index) { RunOnWorker(batch, index); });
  assert(taken);  // a worker without a task has an empty queue
  (void)taken;
}

void Dispatcher::Perform(Actions actions) {
  for (std::shared_ptr<Batch>& batch : actions.batches) Start(std::move(batch));
  for (std::shared_ptr<Batch>& batch : actions.completed) FinishLateTask(std::move(batch));
  for (const std::shared_ptr<Batch>& batch : actions.in_lanes) RunInLane(batch);
  for (const std::shared_ptr<Request>& request : actions.left) request->graph->Leave();
  for (const WorkerId worker : actions.searching) {
    if (std::shared_ptr<Batch> batch = FindBatch(worker)) Start(std::move(batch));
  }
  for (const Outcome& outcome : actions.outcomes) {
    StatisticsRecorder& statistics = outcome.model->statistics();
    if (outcome.failure.empty()) {
      statistics.Succeeded(outcome.rows, outcome.times, outcome.step);
    } else {
      statistics.Failed(outcome.failure, outcome.times.total, outcome.step);
    }
  }
  sequencer_.Deliver(std::move(actions.answers));
}

void Dispatcher::TimerMain() {
  const MemoryReserve::Use use;
  std::vector<std::shared_ptr<Model>> due;
  TimePoint release = clock_.Now() + kReleaseEach;
  while (models_.WaitForDue(clock_, due, release)) {
    std::vector<Actions> all;
    {
      const std::lock_guard<std::mutex> lock(for_timer_mutex_);
      all.swap(for_timer_);
    }
    for (const std::shared_ptr<Model>& model : due) {
      Actions& actions = all.emplace_back();
      const Lock lock(model->queue().mutex());
      Pump(model, clock_.Now(), actions);
    }
    for (Actions& actions : all) Perform(std::move(actions));
    if (clock_.Now() < release) continue;
    ReleaseIdleMemory();
    release = clock_.Now() + kReleaseEach;
  }
}

void Dispatcher::ReleaseIdleMemory() {
  for (int worker = 0; worker < pool_.size(); ++worker) {
    // A busy worker needs its memory.
    (void)pool_.RunHere(worker, [this](int idle) { memory_[idle]->ReleaseIdle(); });
  }
  BufferPool::Default().ReleaseIdle();
}

void Dispatcher::Stop(std::chrono::milliseconds drain) {
  const MemoryReserve::Use use;
  const std::lock_guard<std::mutex> one_at_a_time(stop_mutex_);
  models_.Close();
  if (!timer_.joinable()) return;
  sequencer_.WaitUntilAllAreAnswered(drain);
  models_.CloseToAll();
  for (const std::shared_ptr<Model>& model : models_.All()) {
    Actions actions;
    {
      const Lock lock(model->queue().mutex());
      const TimePoint now = clock_.Now();
      std::vector<Request*> all;
      for (const auto& [number, request] : model->queue().requests) all.push_back(request.get());
      for (Request* request : all) {
        const Status status =
            request->start ? Unavailable("the engine shut down while the request ran")
                           : Unavailable("the engine shut down before the request could run");
        if (Leave(*request, now)) {
          FinishWaiting(request, status, "shutdown", now, actions);
        } else {
          Abandon(*request, status, actions);
        }
      }
      Settle(*model, {}, now, actions);
    }
    Perform(std::move(actions));
    model->program().EndTasks();
  }
  sequencer_.WaitUntilAllAreAnswered(std::nullopt);
  unfold_threads_.Stop();
  models_.Stop();
  timer_.join();
  std::vector<Actions> left_behind;
  {
    const std::lock_guard<std::mutex> lock(for_timer_mutex_);
    timer_ended_ = true;
    left_behind.swap(for_timer_);
  }
  for (Actions& actions : left_behind) Perform(std::move(actions));
}

}  // namespace chairlift
