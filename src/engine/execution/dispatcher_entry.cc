// How requests enter: admission, preparation, arrival at their scheduler.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/memory_reserve.h"
#include "base/out_of_memory.h"
#include "base/retry_after.h"
#include "base/status.h"
#include "engine/execution/dispatcher.h"

namespace chairlift {
namespace {

constexpr CellType kNoType = ~CellType{0};

// From this many nodes on, a request's graph is prepared before the lock is taken: it takes up to
// 0.1 µs per node, during which no other request would be answered.
constexpr int32_t kLargeGraph = 1024;

// The charge of a request to its caller's share if its cost is unknown.
constexpr Duration kLeastCharge = std::chrono::microseconds(1);

// The assumed work of a request of unknown cost, for each started MiB of its inputs: the smaller of
// this and a part of the bound.
constexpr Duration kUnknown = std::chrono::milliseconds(100);
constexpr int kUnknownOfLimit = 16;
constexpr int64_t kMostUnknownMiB = 4096;
// A request of a size that never ran counts as at most this part of what the workers do within the
// bound. A second one is refused behind it, but a wrong estimate must not keep small ones out.
constexpr double kUnmeasuredOfLimit = 5.0 / 8;

double Milliseconds(Duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

// The part of `work`, expected at `model` of a request to `front`, that delays later requests.
// `within`: the time of all workers within the bound; 0: no bound.
Duration CountedOf(Duration work, const Model& model, Model& front, int64_t bytes,
                   Duration within) {
  if (within == Duration(0)) return work;
  if (front.queue().costs->Predict(model.metadata().name, bytes).measured) return work;
  const double most = static_cast<double>(within.count()) * kUnmeasuredOfLimit;
  return std::min(work, Duration(static_cast<int64_t>(most)));
}

}  // namespace

Duration Dispatcher::UnknownWork(const Model& model, int64_t bytes) const {
  const Duration limit = MaxWait(model);
  const Duration each =
      limit == Duration(0) ? kUnknown : std::min(kUnknown, limit / kUnknownOfLimit);
  return each * std::min(bytes / (int64_t{1} << 20) + 1, kMostUnknownMiB);
}

Dispatcher::AskedModels Dispatcher::ModelsAskedBy(const std::shared_ptr<Model>& model, int64_t rows,
                                                  int64_t bytes) const {
  AskedModels asked;
  const auto add = [&](const std::shared_ptr<Model>& one, int64_t times) {
    for (AskedModel& known : asked) {
      if (known.model != one) continue;
      known.times += times;
      return;
    }
    // A model that calls others has no queue of its own. A request to a model that generates joins
    // those under way; it does not wait until they end.
    const Program& program = one->program();
    const bool leads_on = program.CallsOthers() && one != model;
    const Duration work =
        leads_on ? Duration(0)
                 : one->queue().WorkOf(model->queue(), bytes, UnknownWork(*model, bytes));
    const Duration counted = CountedOf(work, *one, *model, bytes, MaxWait(*model) * pool_.size());
    asked.push_back({one, times, work, counted, !leads_on && !program.JoinsOthers()});
  };
  for (const ExpectedCalls& call : model->program().CallsOf(rows)) {
    add(call.model.model, std::max<int64_t>(call.times, 1));
  }
  if (asked.empty()) add(model, 1);
  return asked;
}

Duration Dispatcher::WorkAsItself(const Request& request) const {
  Model& model = *request.model;
  const int64_t bytes = request.input_bytes;
  const Duration work = model.queue().WorkOf(model.queue(), bytes, UnknownWork(model, bytes));
  return CountedOf(work, model, model, bytes, MaxWait(model) * pool_.size());
}

StatusOr<std::shared_ptr<Admission>> Dispatcher::Reserve(const std::shared_ptr<Model>& model,
                                                         const FairShare::Client& caller,
                                                         const UnreadBody& body) {
  const auto reserve = [&]() -> StatusOr<std::shared_ptr<Admission>> {
    const TimePoint now = clock_.Now();
    ModelQueue& queue = model->queue();
    {
      const Lock lock(queue.mutex());
      CHAIRLIFT_RETURN_IF_ERROR(PlaceInQueue(*model, caller, now));
    }
    const int64_t bytes = queue.InputBytesOf(body);
    AskedModels asked = ModelsAskedBy(model, 1, bytes);
    CHAIRLIFT_RETURN_IF_ERROR(AdmitWait(*model, asked, caller));
    auto place = std::make_shared<Admission>(caller, now, queue.costs, bytes, body);
    for (AskedModel& one : asked) {
      place->Expect(std::move(one.model), std::move(one.coming), one.wait);
    }
    return place;
  };
  StatusOr<std::shared_ptr<Admission>> place = reserve();
  if (!place.ok()) model->statistics().Failed("queue_full", Duration(0), false);
  return place;
}

Status Dispatcher::Admit(Request& request, int64_t rows, const std::shared_ptr<Admission>& place) {
  const std::shared_ptr<Model>& model = request.model;
  ModelQueue& queue = model->queue();
  AskedModels asked = ModelsAskedBy(model, rows, request.input_bytes);
  const bool reserved = place != nullptr && place->front() == queue.costs;
  bool covered = reserved;
  if (reserved && place->body()) queue.LearnInputBytes(*place->body(), request.input_bytes);
  for (AskedModel& one : asked) {
    if (!reserved) break;
    const std::optional<Duration> wait = place->Covers(*one.model, one.work);
    covered = covered && wait.has_value();
    one.wait = wait.value_or(Duration(0));
  }
  if (covered) {
    for (AskedModel& one : asked) one.coming = Coming(*one.model, one.times, one.counted);
  }
  if (place != nullptr) place->GiveBack();
  if (!covered) CHAIRLIFT_RETURN_IF_ERROR(AdmitWait(*model, asked, request.caller));
  if (asked.size() == 1 && asked[0].model == model) {
    request.expected_wait = asked[0].wait;
    request.coming = std::move(asked[0].coming);
    return absl::OkStatus();
  }
  request.admission = std::make_shared<Admission>(request.caller, clock_.Now(), queue.costs,
                                                  request.input_bytes, std::nullopt);
  for (AskedModel& one : asked) {
    request.admission->Expect(std::move(one.model), std::move(one.coming), one.wait);
  }
  return absl::OkStatus();
}

Status Dispatcher::Place(const Request& request) {
  // Parts of an accepted request are always accepted.
  if (!request.inside) {
    CHAIRLIFT_RETURN_IF_ERROR(PlaceInQueue(*request.model, request.caller, request.arrival));
  }
  CHAIRLIFT_RETURN_IF_ERROR(AdmitDeadline(request));
  switch (models_.Enter(request.model, options_.max_requests, request.inside)) {
    case ActiveModels::Entry::kDone:
      return absl::OkStatus();
    case ActiveModels::Entry::kClosed:
      return Unavailable("the engine is shutting down");
    case ActiveModels::Entry::kFull:
      return ResourceExhausted(
          "{} requests are waiting or running, the engine's limit; retry later",
          options_.max_requests);
  }
  return Internal("unknown");
}

Status Dispatcher::PlaceInQueue(Model& model, const FairShare::Client& caller, TimePoint now) {
  const std::string& name = model.metadata().name;
  const int limit = model.metadata().config.max_queue_size;
  ModelQueue& queue = model.queue();
  const int waiting = queue.scheduler().waiting() + queue.unfolding;
  const int64_t allowed = [&] {  // places are shared in the same way as time
    const std::lock_guard<std::mutex> lock(queue.shares_mutex);
    return queue.shares.Allowed(caller, Duration(waiting), Duration(limit), now).count();
  }();
  if (waiting < allowed) return absl::OkStatus();
  if (allowed == limit) {
    return ResourceExhausted("{} requests wait for model '{}', its max_queue_size; retry later",
                             limit, name);
  }
  return ResourceExhausted(
      "{} requests wait for model '{}'; its max_queue_size is {}, of which a client that has had "
      "more than its share may fill {}; retry later",
      waiting, name, limit, allowed);
}

Duration Dispatcher::MaxWait(const Model& model) const {
  const std::optional<int64_t> own = model.metadata().config.max_queue_wait_us;
  return own ? std::chrono::microseconds(*own) : options_.max_queue_wait;
}

Duration Dispatcher::MaxWaitForState(const Model& model) const {
  const Duration own = MaxWait(model);
  return own > Duration(0) ? own : options_.max_queue_wait;
}

Duration Dispatcher::WaitAt(std::span<const AskedModel> asked, Duration least) const {
  // If a worker is idle, nothing waits, and running tasks delay no request.
  const auto before = [](const AskedModel& one, bool idle) {
    const ModelQueue& queue = one.model->queue();
    const Duration to_come = one.coming.work_before();
    const Duration left = idle ? to_come : queue.Left(to_come);
    return Duration(
        static_cast<int64_t>(static_cast<double>(left.count()) * queue.Before(one.times)));
  };
  const auto on_workers = [](const AskedModel& one) {
    return one.waits && one.model->queue().lanes.tasks == 0;
  };
  Duration elsewhere{0}, own{0};
  for (const AskedModel& one : asked) {
    const ModelQueue& queue = one.model->queue();
    if (on_workers(one)) {
      own += before(one, false);
    } else if (one.waits && queue.begun + one.coming.times_before() >= queue.lanes.at_work) {
      elsewhere += before(one, queue.begun < queue.lanes.at_work) / queue.lanes.at_work;
    }
  }
  if (own == Duration(0)) return elsewhere;
  const Duration longest = own * (models_.size() + 1) / pool_.size();  // whatever other models have
  if (elsewhere + longest <= least) return elsewhere + longest;
  Duration brings{0};
  int64_t present = 0, to_come = 0;  // requests
  const auto count = [&](const ModelQueue& queue, int64_t coming) {
    present += queue.present - queue.unfolding;
    to_come += coming;
  };
  for (const AskedModel& one : asked) {
    if (!on_workers(one)) continue;
    count(one.model->queue(), one.coming.times_before());
    brings += one.work;
  }
  std::vector<std::shared_ptr<Model>> others = models_.All();
  std::erase_if(others, [&](const std::shared_ptr<Model>& other) {
    return other->queue().lanes.tasks > 0 ||
           std::any_of(asked.begin(), asked.end(),
                       [&](const AskedModel& one) { return one.model == other && one.waits; });
  });
  for (const auto& other : others) count(other->queue(), other->queue().coming);
  // A request of many tasks shares the workers with those that run, even if one is idle just now.
  const int64_t free = brings > least ? pool_.size() - present : models_.idle();
  if (to_come < free) return elsewhere;
  const auto wait_on = [&](int64_t workers, bool idle) {
    std::vector<Duration> work = {Duration(0)};
    for (const AskedModel& one : asked) {
      if (on_workers(one)) work[0] += before(one, idle);
    }
    for (const auto& other : others) {
      work.push_back(idle ? other->queue().ToCome() : other->queue().Backlog());
    }
    return ExpectedWait(work, 0, static_cast<int>(workers));
  };
  const Duration behind_all = wait_on(pool_.size(), false);
  if (free <= 0) return elsewhere + behind_all;
  // The workers that are free now do at least what is to come, however long the others run.
  return elsewhere + std::min(behind_all, wait_on(free, true));
}

Status Dispatcher::AdmitWait(Model& model, AskedModels& asked,
                             const FairShare::Client& caller) const {
  // First, so that of simultaneous requests one sees the other.
  for (AskedModel& one : asked) one.coming = Coming(*one.model, one.times, one.counted);
  CHAIRLIFT_ASSIGN_OR_RETURN(const Duration all, CheckWait(model, asked, caller));
  if (asked.size() == 1 && asked[0].model.get() == &model) {
    asked[0].wait = all;
    return absl::OkStatus();
  }
  for (AskedModel& one : asked) {
    if (!one.waits) continue;
    CHAIRLIFT_ASSIGN_OR_RETURN(one.wait, CheckWait(*one.model, {&one, 1}, caller));
  }
  return absl::OkStatus();
}

StatusOr<Duration> Dispatcher::CheckWait(Model& model, std::span<const AskedModel> asked,
                                         const FairShare::Client& caller) const {
  const Duration limit = MaxWait(model);
  if (limit == Duration(0)) return Duration(0);
  const Duration expected = WaitAt(asked, FairShare::Free(limit));
  if (expected <= FairShare::Free(limit)) return Duration(0);
  double stretch = 1;
  Duration own{0};
  for (const AskedModel& one : asked) {
    if (!one.waits) continue;
    stretch = std::max(stretch, one.model->queue().stretch.load());
    own += std::max(one.model->queue().batch_time.load(), one.work);
  }
  const Duration wait = ExpectedAnswer(expected, stretch, own, limit);
  const Duration allowed = [&] {
    const std::lock_guard<std::mutex> lock(model.queue().shares_mutex);
    return model.queue().shares.Allowed(caller, wait, limit, clock_.Now());
  }();
  if (wait <= allowed) return expected;
  const std::string share =
      allowed < limit
          ? fmt::format(" (a client that has had more than its share may wait {:.0f} ms)",
                        Milliseconds(allowed))
          : "";
  return WithRetryAfter(
      ResourceExhausted("a request for model '{}' would wait {:.0f} ms, longer than its "
                        "max_queue_wait of {:.0f} ms{}; retry later",
                        model.metadata().name, Milliseconds(wait), Milliseconds(limit), share),
      wait - allowed);
}

Status Dispatcher::AdmitDeadline(const Request& request) const {
  if (!request.deadline || request.graph == nullptr) return absl::OkStatus();
  Model& model = *request.model;
  const Duration least = model.program().LeastTime(*request.graph);
  if (least == Duration(0)) return absl::OkStatus();
  const Duration own = least / pool_.size();
  const Duration wait = model.queue().queue_time().work() / pool_.size();
  const Duration left = *request.deadline - request.arrival;
  if (wait + own <= left) return absl::OkStatus();
  if (own > left) {
    return DeadlineExceeded(
        "a request for model '{}' takes {} at the least, longer than its timeout of {}",
        model.metadata().name, TimeText(own), TimeText(left));
  }
  return WithRetryAfter(
      ResourceExhausted(
          "a request for model '{}' would end after {} at the earliest, later than its timeout of "
          "{}; retry in {:.0f} ms",
          model.metadata().name, TimeText(wait + own), TimeText(left),
          std::ceil(Milliseconds(wait + own - left))),
      wait + own - left);
}

Dispatcher::UnitsByType Dispatcher::WorkOf(const CellGraph& graph) {
  UnitsByType work;
  const int64_t each = std::max(graph.length(), 1);
  for (int32_t i = 0; i < graph.num_runs(); ++i) {
    const CellGraph::Run run = graph.run(i);
    const CellType type = run.type;
    const auto found = std::find_if(work.begin(), work.end(),
                                    [&](const QueueTime::Work& part) { return part.type == type; });
    const int64_t units = each * run.rows * run.count;
    if (found != work.end()) {
      found->units += units;
    } else {
      work.push_back({type, units});
    }
  }
  return work;
}

void Dispatcher::SetDeadline(Request& request) {
  const int64_t fallback = request.model->metadata().config.default_timeout_us;
  if (!request.timeout && fallback > 0) request.timeout = std::chrono::microseconds(fallback);
  if (!request.timeout) return;
  // More than a year counts as never; larger values might overflow the sum below.
  constexpr std::chrono::microseconds kNever = std::chrono::hours(24 * 365);
  if (*request.timeout >= kNever) return;
  request.deadline = request.arrival + std::max(*request.timeout, std::chrono::microseconds(0));
}

void Dispatcher::Accept(std::shared_ptr<Request> owned, RequestId number) {
  Request& request = *owned;
  request.number = number;
  sequencer_.Accept(request.reply);
  ModelQueue& queue = request.model->queue();
  if (request.deadline) queue.deadlines.emplace(*request.deadline, number);
  if (request.inside) {
    Admission::Arrival arrival;
    if (request.admission != nullptr) arrival = request.admission->Arrived(*request.model);
    request.expected_wait = arrival.wait;
    request.coming = arrival.coming ? *std::move(arrival.coming)
                                    : Coming(*request.model, 1, WorkAsItself(request));
  }
  request.has_turn = !request.inside || request.admission == nullptr;
  if (request.has_turn) ++queue.turns;
  queue.requests[number] = std::move(owned);
  queue.present = std::ssize(queue.requests);
}

void Dispatcher::Refuse(Request& request, Status refused) {
  request.model->statistics().Failed(absl::IsUnavailable(refused) ? "shutdown" : "queue_full",
                                     Duration(0), request.inside);
  request.reply.callback(std::move(refused));
}

Status Dispatcher::MakeEntry(Request& request, Entry& entry) {
  Lock lock(request.model->queue().mutex(), std::defer_lock);
  Status made = CatchOutOfMemory([&] {
    if (request.graph->num_runs() < kLargeGraph) return absl::OkStatus();
    entry.graph = GraphOf(request, lock);
    entry.work = WorkOf(*entry.graph);
    entry.prepared = request.model->queue().scheduler().Prepare(*entry.graph);
    return absl::OkStatus();
  });
  if (!made.ok() && !request.types.empty()) {
    if (!lock.owns_lock()) lock.lock();
    ReleaseTypes(request);
  }
  return made;
}

void Dispatcher::Enter(Request& request, Entry entry, TimePoint now, Lock& lock, Actions& actions) {
  request.graph->TakeParts([&](std::vector<ReadyPart> parts) {
    sequencer_.SendParts(request.reply.parts, std::move(parts), actions.answers);
  });
  if (request.graph->num_nodes() == 0) return End(&request, now, actions);
  ModelQueue& queue = request.model->queue();
  if (!entry.graph) {
    entry.graph = GraphOf(request, lock);
    entry.work = WorkOf(*entry.graph);
  }
  bool priced = true;
  for (const QueueTime::Work& part : entry.work) {
    queue.ExpectUnits(part.type);
    priced = priced && queue.queue_time().Prices(part.type);
  }
  const Duration whole = priced ? Duration(0) : WorkAsItself(request);
  queue.queue_time().Arrive(entry.work, request.share, whole);
  if (const Duration longest = MaxWaitForState(*request.model);
      entry.graph->state() > 0 && longest > Duration(0)) {
    request.start_by = request.arrival + longest;
    queue.deadlines.emplace(*request.start_by, request.number);
  }
  const Duration work = std::max(queue.queue_time().work(request.share), kLeastCharge);
  const std::lock_guard<std::mutex> shares(queue.shares_mutex);
  queue.shares.Charge(request.caller, work, now);
  if (entry.prepared != nullptr) {
    queue.scheduler().ArrivePrepared(request.number, *entry.graph, std::move(entry.prepared),
                                     request.reply.client, now, request.deadline);
  } else {
    queue.scheduler().Arrive(request.number, *entry.graph, request.reply.client, now,
                             request.deadline);
  }
}

RequestId Dispatcher::Submit(std::shared_ptr<Request> owned, bool caller_waits) {
  Request* request = owned.get();
  request->arrival = clock_.Now();
  SetDeadline(*request);
  Entry entry;
  if (Status made = MakeEntry(*request, entry); !made.ok()) {
    Refuse(*request, std::move(made));
    return 0;
  }
  const std::shared_ptr<Model> model = request->model;
  const uint64_t client = request->reply.client;
  // A client's answers are delivered in order, so another request's callback might run here too.
  const bool runs_here = caller_waits && client == 0 && model->queue().lanes.tasks == 0;
  const RequestId number = next_number_++;
  Actions actions;
  Status refused;
  {
    Lock lock(model->queue().mutex());
    refused = Place(*request);
    if (refused.ok()) {
      Accept(std::move(owned), number);
      const Coming coming = std::move(request->coming);  // until it is seen in the queue
      Enter(*request, std::move(entry), request->arrival, lock, actions);
      Pump(model, clock_.Now(), actions, runs_here ? pool_.WorkerHere() : std::nullopt);
    } else {
      ReleaseTypes(*request);
    }
  }
  if (!refused.ok()) {
    Refuse(*request, std::move(refused));
    return number;
  }
  std::shared_ptr<Batch> own;
  if (runs_here) {
    const auto found = std::find_if(actions.batches.begin(), actions.batches.end(),
                                    [&](const auto& batch) { return batch->IsOf(number); });
    if (found != actions.batches.end()) {
      own = std::move(*found);
      actions.batches.erase(found);
    }
  }
  Perform(std::move(actions));
  if (own != nullptr) StartHere(std::move(own), number);
  return number;
}

bool Dispatcher::MustFollow(const Request& request) {
  return request.reply.client != 0 && request.model->queue().unfolding > 0;
}

RequestId Dispatcher::SubmitToUnfold(const std::shared_ptr<Request>& request, Unfold unfold) {
  request->arrival = clock_.Now();
  SetDeadline(*request);
  const std::shared_ptr<Model> model = request->model;
  const RequestId number = next_number_++;
  Actions actions;
  Status refused;
  {
    const Lock lock(model->queue().mutex());
    refused = Place(*request);
    if (refused.ok()) {
      request->unfolding = true;
      ++model->queue().unfolding;
      Accept(request, number);
      // Under the lock: before Stop() makes sure that nothing is left.
      unfold_threads_.Add(model.get(), [this, request, unfold = std::move(unfold)]() mutable {
        RunUnfold(request, unfold);
      });
      Pump(model, clock_.Now(), actions);
    }
  }
  if (!refused.ok()) {
    Refuse(*request, std::move(refused));
  } else {
    Perform(std::move(actions));
  }
  return number;
}

void Dispatcher::Unfolded(Model& model) {
  --model.queue().unfolding;
  NoteWaiting(model);
}

void Dispatcher::RunUnfold(const std::shared_ptr<Request>& request, Unfold& unfold) {
  const std::shared_ptr<Model> model = request->model;
  ModelQueue& queue = model->queue();
  const auto left = [&] { return !queue.requests.contains(request->number); };
  {
    const Lock lock(queue.mutex());
    if (left()) return Unfolded(*model);
  }
  const MemoryReserve::Use use;
  StatusOr<std::optional<InferResponse>> answer =
      CatchOutOfMemory([&] { return unfold(*request); });
  Entry entry;
  if (answer.ok() && !*answer) {
    if (Status made = MakeEntry(*request, entry); !made.ok()) answer = std::move(made);
  }
  Actions actions;
  {
    Lock lock(queue.mutex());
    Unfolded(*model);
    request->unfolding = false;
    const Coming coming = std::move(request->coming);  // until it is seen in the queue
    const TimePoint now = clock_.Now();
    if (left()) {
      ReleaseTypes(*request);
    } else if (!answer.ok()) {
      FinishWaiting(request.get(), answer.status(), "invalid", now, actions);
    } else if (*answer) {
      Finish(request.get(), **std::move(answer), actions);
    } else {
      Enter(*request, std::move(entry), now, lock, actions);
    }
    Pump(model, now, actions);
  }
  Perform(std::move(actions));
}

CellType Dispatcher::HoldType(Request& request, int cell, std::span<const int64_t> key,
                              Lock& lock) {
  const auto at = static_cast<size_t>(cell);
  if (request.closed.empty()) {
    request.closed.assign(static_cast<size_t>(request.model->program().num_cells()), kNoType);
  }
  if (key.empty() && request.closed[at] != kNoType) return request.closed[at];
  if (!key.empty()) {
    const auto found = request.open.find({cell, {key.begin(), key.end()}});
    if (found != request.open.end()) return found->second;
  }
  const bool locked = lock.owns_lock();
  if (!locked) lock.lock();
  const CellType type = request.model->queue().HoldType(cell, key);
  if (!locked) lock.unlock();
  request.types.push_back(type);
  if (key.empty()) {
    request.closed[at] = type;
  } else {
    request.open.emplace(std::pair(cell, absl::InlinedVector<int64_t, 8>(key.begin(), key.end())),
                         type);
  }
  return type;
}

CellGraph Dispatcher::GraphOf(Request& request, Lock& lock) {
  CellGraph graph;
  const RequestGraph& own = *request.graph;
  const int32_t nodes = own.num_nodes();
  graph.set_length(own.length());
  graph.set_turn(request.turn);
  graph.set_state(own.state());
  graph.set_state_rows(own.state_rows());
  if (nodes == 1) {  // no other node could share its type; it may grow
    const GraphNode node = own.run(0);
    const bool locked = lock.owns_lock();
    if (!locked) lock.lock();
    request.types.push_back(request.model->queue().HoldType(node.cell, node.key));
    if (!locked) lock.unlock();
    if (node.divisible) {
      graph.AddDivisible(request.types[0], node.rows);
    } else {
      graph.Add(request.types[0], node.rows, node.dependencies);
    }
    return graph;
  }
  const int32_t runs = own.num_runs();
  graph.Reserve(runs, 2 * runs);
  for (int32_t i = 0; i < runs; ++i) {
    const GraphNode run = own.run(i);
    graph.Add(HoldType(request, run.cell, run.key, lock), run.rows, run.dependencies, run.follows,
              run.count);
  }
  return graph;
}

}  // namespace chairlift
