// How tasks run, and how their requests continue.
#include <algorithm>
#include <utility>

#include "base/out_of_memory.h"
#include "base/prefetch.h"
#include "base/status.h"
#include "batching/task_cost.h"
#include "engine/execution/dispatcher.h"

namespace chairlift {
namespace {

// A task expected to take less runs on its own worker only. Waking others and letting them poll for
// parts takes longer than it saves, and takes cores from the threads that read the answer.
constexpr Duration kWorthATeam = std::chrono::microseconds(50);

// The minimum for a task that follows another on its worker without a pause, and for every step of
// such a task: the others still poll.
constexpr Duration kWorthATeamInAChain = std::chrono::microseconds(5);

// How long a thread that waits for its answer runs tasks itself, without checking for interruption.
// The cost of handing over longer tasks is small in comparison.
constexpr Duration kOnCallersThread = std::chrono::milliseconds(20);

}  // namespace

void Dispatcher::Record(const Batch& batch) {
  if (!trace_.on()) return;
  const Model& model = *batch.model;
  Task task = batch.task;
  task.rows = batch.result.rows;  // rows of requests: the scheduler may have counted tokens or room
  trace_.Record({.model = model.metadata().name,
                 .cell = model.program().CellName(batch.cell),
                 .task = std::move(task),
                 .helped = batch.helped,
                 .in_lane = model.program().lanes().tasks > 0,
                 .start = batch.start,
                 .end = batch.start + batch.time()},
                batch.nodes_ran ? &*batch.nodes_ran : nullptr);
}

bool Dispatcher::WorthSharing(const Batch& batch, Duration worth_a_team) const {
  // If requests wait, no worker will be idle, and a job divided into parts takes a few percent
  // longer.
  const bool long_enough =
      batch.charged >= worth_a_team && batch.charged / batch.task.steps() >= kWorthATeamInAChain;
  return long_enough && (batch.task.by_team || waiting_.load() == 0);
}

bool Dispatcher::Batch::IsOf(RequestId number) const {
  return std::all_of(requests.begin(), requests.end(),
                     [number](const Request* request) { return request->number == number; });
}

void Dispatcher::RunOnWorker(std::shared_ptr<Batch> batch, int worker,
                             std::optional<RequestId> only) {
  const MemoryReserve::Use use;
  const TimePoint until = clock_.Now() + kOnCallersThread;
  for (Duration worth = kWorthATeam; batch != nullptr; worth = kWorthATeamInAChain) {
    if (only && (!batch->IsOf(*only) || clock_.Now() + batch->charged > until)) {
      return Start(std::move(batch));
    }
    batch = RunTask(batch, worker, worth);
  }
}

void Dispatcher::StartHere(std::shared_ptr<Batch> batch, RequestId number) {
  const bool ran =
      pool_.RunHere(batch->task.worker, [&](int worker) { RunOnWorker(batch, worker, number); });
  if (!ran) Start(std::move(batch));
}

std::shared_ptr<Dispatcher::Batch> Dispatcher::RunTask(const std::shared_ptr<Batch>& batch,
                                                       int worker, Duration worth_a_team) {
  WorkerMemory& memory = *memory_[static_cast<size_t>(worker)];
  memory.stop = &batch->ride.stop;
  if (const size_t bytes = trace_.node_bytes(); bytes > 0) batch->nodes_ran.emplace(bytes);
  memory.timer = batch->nodes_ran ? &*batch->nodes_ran : nullptr;
  batch->start = clock_.Now();
  {
    WorkerPool::TeamLease lease = pool_.OpenTeam(worker, WorthSharing(*batch, worth_a_team));
    batch->run.emplace(TaskRun{.cell = batch->cell,
                               .padding_rows = batch->task.padding_rows,
                               .padded_steps = batch->task.padded_steps,
                               .nodes = batch->nodes,
                               .team = lease.team(),
                               .worker = worker,
                               .memory = memory});
    batch->self = batch;
    batch->model->program().Run(*batch->run, [this, own = batch.get()](const TaskResult& result) {
      own->result = result;
      if (!own->half_done.exchange(true)) return;  // Run() has not returned
      FinishLateTask(std::move(own->self));
    });
    batch->helped = lease.helped();
  }
  if (!batch->half_done) {
    const std::lock_guard<std::mutex> lock(late_mutex_);  // before FinishLateTask() decrements it
    if (!batch->half_done.exchange(true)) {
      ++late_;
      return nullptr;
    }
  }
  batch->self = nullptr;
  return FinishTask(*batch);
}

void Dispatcher::RunInLane(const std::shared_ptr<Batch>& batch) {
  batch->start = clock_.Now();
  batch->run.emplace(
      TaskRun{.cell = batch->cell,
              .padding_rows = batch->task.padding_rows,
              .nodes = batch->nodes,
              .team = lanes_team_,
              .worker = batch->task.worker,
              .memory = lanes_memory_,
              .stop = &batch->ride.stop,
              .send_parts = [this, own = batch.get()](size_t node) { SendParts(*own, node); }});
  batch->self = batch;
  {
    const std::lock_guard<std::mutex> lock(late_mutex_);
    ++late_;
  }
  batch->model->program().Run(*batch->run, [this, own = batch.get()](const TaskResult& result) {
    own->result = result;
    if (!own->half_done.exchange(true)) return;  // Run() has not returned
    FinishLateTask(std::move(own->self));
  });
  if (!batch->half_done.exchange(true)) return;
  // It has completed. The caller may hold locks that callbacks take, and what follows may start
  // more tasks that complete immediately.
  Actions actions;
  actions.completed.push_back(std::move(batch->self));
  if (!GiveToTimer(actions, *batch->model)) FinishLateTask(std::move(actions.completed[0]));
}

void Dispatcher::SendParts(Batch& batch, size_t node) {
  const Request& request = *batch.requests[node];
  if (request.reply.parts == nullptr) return;
  Actions actions;
  batch.nodes[node].graph->TakeParts([&](std::vector<ReadyPart> parts) {
    sequencer_.SendParts(request.reply.parts, std::move(parts), actions.answers);
  });
  Perform(std::move(actions));
}

std::shared_ptr<Dispatcher::Batch> Dispatcher::FinishTask(Batch& batch) {
  Record(batch);
  Actions ended;
  double share = 0;
  for (const Request* request : batch.requests) Prefetch(request, sizeof(Request));
  for (size_t i = 0; i < batch.requests.size(); ++i) {
    const Request& request = *batch.requests[i];
    TaskNode& node = batch.nodes[i];
    share += node.share;
    if (!node.status.ok()) {
      node.status = batch.model->program().Explain(std::move(node.status), node.graph->request());
    }
    if (request.reply.parts == nullptr) continue;
    node.graph->TakeParts([&](std::vector<ReadyPart> parts) {
      sequencer_.SendParts(request.reply.parts, std::move(parts), ended.answers);
    });
  }
  absl::InlinedVector<int32_t, 16> rows;
  int32_t padding = 0;
  ForEachStepOf(batch.task, [&](int32_t asked, int32_t padding_of_step) {
    rows.push_back(asked);
    padding += padding_of_step;
  });
  rows[0] = batch.result.rows;
  batch.model->statistics().Executed(
      rows, padding, batch.result.compute_infer,
      share / static_cast<double>(std::max<size_t>(batch.requests.size(), 1)));
  {
    Lock lock(batch.model->queue().mutex());
    FinishNodes(batch, lock, ended);
    Learn(batch);
    if (batch.model->queue().lanes.tasks > 0) {
      batch.model->queue().free_lanes.push_back(batch.task.worker);
      Pump(batch.model, clock_.Now(), ended);
    } else {
      Settle(*batch.model, {.charge = batch.time() - batch.charged}, clock_.Now(), ended);
    }
  }
  // Responses first: the worker looks for a task once their callbacks have returned.
  Perform(std::move(ended));
  if (batch.model->queue().lanes.tasks > 0) return nullptr;
  std::shared_ptr<Batch> own = FindBatch(batch.run->worker);
  bool more = own != nullptr;  // possibly more work, for other workers
  while (more) {
    const std::optional<ActiveModels::Search> idle = models_.TakeIdle();
    std::shared_ptr<Batch> next = idle ? FindBatch(idle->worker) : nullptr;
    more = next != nullptr;
    if (more) Start(std::move(next));
  }
  return own;
}

void Dispatcher::FinishLateTask(std::shared_ptr<Batch> batch) {
  const MemoryReserve::Use use;
  if (std::shared_ptr<Batch> next = FinishTask(*batch)) Start(std::move(next));
  // Releases its requests and their model before waiting callers release theirs: the last owner
  // destroys them, and must not be this thread, which the model may own.
  batch = nullptr;
  // Must be last: a waiting thread may destroy the dispatcher.
  const std::lock_guard<std::mutex> lock(late_mutex_);
  if (--late_ == 0) none_late_.notify_all();
}

void Dispatcher::WaitForTasks() {
  std::unique_lock<std::mutex> lock(late_mutex_);
  none_late_.wait(lock, [this] { return late_ == 0; });
}

void Dispatcher::FinishNodes(Batch& batch, Lock& lock, Actions& actions) {
  ModelQueue& queue = batch.model->queue();
  const TimePoint now = clock_.Now();
  const TimePoint end = batch.start + batch.time();
  int64_t units = 0;
  for (const TaskNode& node : batch.nodes) units += node.units;
  const auto part_of = [&](const TaskNode& node) {
    const double part = units > 0 ? static_cast<double>(node.units) / static_cast<double>(units)
                                  : 1.0 / static_cast<double>(batch.nodes.size());
    const int workers = batch.helped ? pool_.size() : 1;
    return Duration(static_cast<int64_t>(static_cast<double>(batch.time().count()) * part)) *
           workers;
  };
  for (size_t i = 0; i < batch.requests.size(); ++i) {
    Request& request = *batch.requests[i];
    TaskNode& node = batch.nodes[i];
    GetOff(request, batch.ride);
    if (!request.ran) {
      request.start = batch.start;
      const TimePoint since = request.inside && request.admission != nullptr
                                  ? request.admission->begun()
                                  : request.arrival;
      queue.LearnWait(request.expected_wait, batch.start - since);
    }
    request.ran = true;
    request.cost.time += part_of(node);
    request.cost.helped = request.cost.helped || (batch.helped && !batch.task.by_team);
    request.cost.batched = std::max(request.cost.batched, static_cast<int>(batch.requests.size()));
    queue.queue_time().Ran({batch.task.type, node.units + node.skipped}, request.share);
    request.times.compute_input += batch.result.compute_input;
    request.times.compute_output += batch.result.compute_output;
    request.widest = std::max(request.widest, batch.result.rows);
    if (node.status.ok() || !request.leaving.ok()) continue;
    Abandon(request, WithEmptyInput(request, std::move(node.status)), actions);
    queue.scheduler().Cancel(request.number, now);  // it is running, so it stays
  }
  // All nodes first: a request may grow at several.
  std::vector<GrownNode> nodes;
  std::vector<Scheduler::Growth> grown;
  for (Request* request : batch.requests) {
    for (GrownNode& node : request->graph->TakeGrown()) {
      grown.push_back({.request = request->number,
                       .type = HoldType(*request, node.cell, node.key, lock),
                       .rows = node.rows,
                       .dependencies = {},
                       .follows = node.follows,
                       .count = node.count,
                       .divisible = node.divisible});
      const int64_t units = int64_t{node.rows} * node.count;
      if (!node.left_over) queue.queue_time().Grow({grown.back().type, units}, request->share);
      nodes.push_back(std::move(node));
    }
  }
  for (size_t i = 0; i < nodes.size(); ++i) grown[i].dependencies = nodes[i].dependencies;
  for (BatchRequestId number : queue.scheduler().Complete(batch.task.id, now, grown)) {
    End(queue.requests.at(number).get(), end, actions);
  }
}

void Dispatcher::LearnCost(Request& request, bool complete) {
  Model& model = *request.model;
  if (model.program().CallsOthers()) return;  // its tasks wait for others
  request.cost.complete = complete;
  model.queue().costs->Learn(model.metadata().name, request.input_bytes, request.cost);
  if (request.admission != nullptr) request.admission->Ran(model, request.cost);
}

void Dispatcher::Learn(const Batch& batch) const {
  ModelQueue& queue = batch.model->queue();
  const Duration compute = batch.time();
  if (batch.ride.stop) return;  // an incomplete run tells nothing about costs
  int64_t units = 0;
  for (const TaskNode& node : batch.nodes) units += node.units;
  queue.Learn(batch.task, batch.helped, compute);
  if (queue.counts_by_size()) return;
  // Idle workers help only when nothing waits, so this says nothing about a queue.
  if (!batch.helped) queue.queue_time().Learn(batch.task.type, units, compute);
  if (batch.helped && batch.task.by_team) {
    queue.queue_time().Learn(batch.task.type, units, compute * pool_.size());
  }
}

}  // namespace chairlift
