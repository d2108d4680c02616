#include "batching/policies/cellular.h"

#include <algorithm>
#include <cassert>
#include <tuple>

#include "base/status.h"

namespace chairlift {
namespace {

// Adaptive run-ahead: for how many full run-aheads nobody must have joined before one is dared.
constexpr int kCalmRounds = 4;
// Requests with more nodes give their memory back.
constexpr size_t kNodesKept = 4096;

using State = LiveNode::State;

}  // namespace

StatusOr<std::unique_ptr<Scheduler>> MakeCellularScheduler(const PolicyOptions& options) {
  if (options.max_batch_size < 1) {
    return InvalidArgument("max_batch_size is {}; it must be at least 1", options.max_batch_size);
  }
  if (options.max_tasks_to_submit < 1) {
    return InvalidArgument("max_tasks_to_submit is {}; it must be at least 1",
                           options.max_tasks_to_submit);
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckCellTypes(options));
  return std::make_unique<CellularScheduler>(options);
}

CellularScheduler::CellularScheduler(const PolicyOptions& options) : options_(options) {}

void CellularScheduler::Learn(CellType type) {
  if (type >= types_.size()) types_.resize(type + 1);
  TypeState& state = types_[type];
  state.sizes = SizesOf(options_, type);
  state.priority = phases_.Of(type);
  if (type < options_.cell_types.size()) {
    state.priority = options_.cell_types[type].priority.value_or(state.priority);
  }
}

CellularScheduler::WorkerState& CellularScheduler::WorkerOf(WorkerId worker) {
  assert(worker >= 0);
  if (static_cast<size_t>(worker) >= workers_.size()) workers_.resize(worker + 1);
  return workers_[worker];
}

int64_t CellularScheduler::Takeable(const TypeState& type, WorkerId worker) const {
  const auto own = static_cast<size_t>(worker) + 1;
  return (type.sizes_ready.empty() ? 0 : type.sizes_ready[0]) +
         (own < type.sizes_ready.size() ? type.sizes_ready[own] : 0);
}

void CellularScheduler::Enqueue(Slot slot, size_t first) {
  LiveRequest& request = *requests_[slot];
  const auto moved = [this](const ReadyQueue::Entry& entry, int32_t position) {
    requests_[entry.request]->subgraphs[entry.subgraph].position = position;
  };
  for (size_t i = first; i < request.subgraphs.size(); ++i) {
    Subgraph& subgraph = request.subgraphs[i];
    subgraph.position = TypeOf(subgraph.type).queue.Add(slot, static_cast<int32_t>(i), moved);
  }
}

CellularScheduler::Slot CellularScheduler::Enter(BatchRequestId id, ClientId client,
                                                 std::optional<TimePoint> deadline) {
  assert(!slots_.contains(id));
  if (free_.empty()) {
    free_.push_back(static_cast<Slot>(requests_.size()));
    requests_.push_back(std::make_unique<LiveRequest>());
  }
  const Slot slot = free_.back();
  free_.pop_back();
  LiveRequest& request = *requests_[slot];
  request.id = id;
  request.client = client;
  request.deadline = deadline;
  request.held = !clients_.Add(client, id);
  request.started = request.leaving = request.expired = false;
  slots_.emplace(id, slot);
  if (deadline) deadlines_.emplace(*deadline, slot);
  ++waiting_;
  return slot;
}

void CellularScheduler::Arrive(BatchRequestId id, const CellGraph& graph, ClientId client,
                               TimePoint /*now*/, std::optional<TimePoint> deadline) {
  assert(graph.size() > 0);
  phases_.Learn(graph, [this](CellType type) { Learn(type); });
  const Slot slot = Enter(id, client, deadline);
  requests_[slot]->Assign(graph);
  Enqueue(slot, 0);
  for (int32_t node = 0; node < graph.size(); ++node) OfferIfReady(slot, node);
}

struct CellularScheduler::Prepared : PreparedGraph {
  LiveRequest request;
  std::vector<int32_t> first_of_type;  // nodes
  std::vector<int32_t> ready;          // nodes that read from none
};

std::unique_ptr<PreparedGraph> CellularScheduler::Prepare(const CellGraph& graph) const {
  auto prepared = std::make_unique<Prepared>();
  prepared->request.Assign(graph);
  std::vector<bool> seen;
  for (int32_t node = 0; node < graph.size(); ++node) {
    const CellType type = graph.type(node);
    if (type >= seen.size()) seen.resize(type + 1);
    if (!seen[type]) prepared->first_of_type.push_back(node);
    seen[type] = true;
    if (graph.dependencies(node).empty()) prepared->ready.push_back(node);
  }
  return prepared;
}

void CellularScheduler::ArrivePrepared(BatchRequestId id, const CellGraph& graph,
                                       std::unique_ptr<PreparedGraph> prepared, ClientId client,
                                       TimePoint /*now*/, std::optional<TimePoint> deadline) {
  auto& ours = static_cast<Prepared&>(*prepared);
  for (const int32_t node : ours.first_of_type) {
    phases_.Learn(graph, node, [this](CellType type) { Learn(type); });
  }
  const Slot slot = Enter(id, client, deadline);
  requests_[slot]->SwapGraphs(ours.request);
  Enqueue(slot, 0);
  for (const int32_t node : ours.ready) OfferIfReady(slot, node);
}

void CellularScheduler::OfferIfReady(Slot slot, int32_t index) {
  LiveRequest& request = *requests_[slot];
  LiveNode& node = request.nodes[index];
  if (node.state != State::kWaiting || node.not_given > 0) return;
  Subgraph& subgraph = request.subgraphs[node.subgraph];
  if (node.not_complete > 0) {
    if (node.tie == kSeveralWorkers) return;
    if (subgraph.pins > 0 && subgraph.pinned != node.tie) return;
    node.tied = true;
    ++subgraph.pins;
    subgraph.pinned = node.tie;
  }
  request.PushReady(index);
  TypeState& type = TypeOf(subgraph.type);
  const int32_t list = type.queue.at(subgraph.position).list;
  if (list != ReadyQueue::kUnfiled) type.sizes_ready[list] += node.size();
  File(slot, node.subgraph);
}

void CellularScheduler::File(Slot slot, int32_t index) {
  LiveRequest& request = *requests_[slot];
  Subgraph& subgraph = request.subgraphs[index];
  int32_t list = subgraph.pins > 0 ? 1 + subgraph.pinned : 0;
  if (subgraph.first_ready < 0 || request.held || request.leaving) list = ReadyQueue::kUnfiled;
  TypeState& type = TypeOf(subgraph.type);
  const int32_t from = type.queue.at(subgraph.position).list;
  if (list == from) return;
  type.queue.File(subgraph.position, list);
  if (from != ReadyQueue::kUnfiled) type.sizes_ready[from] -= subgraph.ready_size;
  if (list == ReadyQueue::kUnfiled) return;
  if (static_cast<size_t>(list) >= type.sizes_ready.size()) type.sizes_ready.resize(list + 1);
  type.sizes_ready[list] += subgraph.ready_size;
}

void CellularScheduler::FileAll(Slot slot) {
  const auto count = static_cast<int32_t>(requests_[slot]->subgraphs.size());
  for (int32_t subgraph = 0; subgraph < count; ++subgraph) File(slot, subgraph);
}

void CellularScheduler::Release(Slot slot) {
  requests_[slot]->held = false;
  FileAll(slot);
}

// The request starts, or leaves without having.
void CellularScheduler::Start(Slot slot) {
  LiveRequest& request = *requests_[slot];
  if (request.started) return;
  request.started = true;
  --waiting_;
  const std::optional<BatchRequestId> next = clients_.Remove(request.client, request.id);
  if (next) Release(slots_.at(*next));
}

bool CellularScheduler::IsCalm() const {
  return waiting_ == 0 && tasks_since_start_ >= kCalmRounds * options_.max_tasks_to_submit;
}

std::optional<CellType> CellularScheduler::Choose(WorkerId worker, bool committed) const {
  // The best type by (impatience, rule, priority).
  std::optional<CellType> best;
  std::tuple<int, int, int> best_rank;
  for (CellType i = 0; i < types_.size(); ++i) {
    const TypeState& type = types_[i];
    const int64_t takeable = Takeable(type, worker);
    const int impatience = type.passed_over >= kPatience ? type.passed_over : 0;
    if (takeable < (committed && impatience == 0 ? type.sizes.min : 1)) continue;
    const int rule = takeable >= type.sizes.max ? 2 : type.running_tasks == 0 ? 1 : 0;
    const std::tuple<int, int, int> rank(impatience, rule, type.priority);
    if (best && rank <= best_rank) continue;
    best = i;
    best_rank = rank;
  }
  return best;
}

std::optional<CellType> CellularScheduler::Decide(WorkerId worker) {
  WorkerState& state = WorkerOf(worker);
  const bool committed = state.in_flight > 0;
  if (options_.adaptive_run_ahead) {
    if (state.in_flight >= (IsCalm() ? options_.max_tasks_to_submit : 1)) return std::nullopt;
    return Choose(worker, committed);
  }
  if (!committed) {
    const std::optional<CellType> type = Choose(worker, false);
    if (type) state = {.in_flight = 0, .decided = *type, .left = options_.max_tasks_to_submit - 1};
    return type;
  }
  if (state.left == 0) return std::nullopt;
  const TypeState& type = TypeOf(state.decided);
  if (Takeable(type, worker) < type.sizes.min) {
    state.left = 0;
    return std::nullopt;
  }
  --state.left;
  return state.decided;
}

std::optional<Task> CellularScheduler::Next(WorkerId worker, TimePoint now) {
  Expire(now);
  const std::optional<CellType> type = Decide(worker);
  if (!type) return std::nullopt;
  for (CellType i = 0; i < types_.size(); ++i) {
    if (i != *type && Takeable(types_[i], worker) > 0) ++types_[i].passed_over;
  }
  types_[*type].passed_over = 0;
  return Form(*type, worker);
}

// The oldest ready nodes that the worker may take, as many as fit.
void CellularScheduler::Collect(TypeState& type, WorkerId worker, std::vector<Member>& members) {
  const int32_t own = 1 + worker;
  int32_t size = 0;
  int32_t next_any = type.queue.Next(0, 0);
  int32_t next_own = type.queue.Next(own, 0);
  while (next_any != ReadyQueue::kNone || next_own != ReadyQueue::kNone) {
    const bool from_any =
        next_own == ReadyQueue::kNone || (next_any != ReadyQueue::kNone && next_any < next_own);
    const int32_t position = from_any ? next_any : next_own;
    const ReadyQueue::Entry entry = type.queue.at(position);
    LiveRequest& request = *requests_[entry.request];
    Subgraph& subgraph = request.subgraphs[entry.subgraph];
    const auto fits = [&] {
      const int32_t needed = request.nodes[subgraph.first_ready].size();
      return size == 0 || size + needed <= type.sizes.max;
    };
    if (!fits()) return;
    do {
      const int32_t node = request.PopReady(subgraph);
      const int32_t taken = request.nodes[node].size();
      size += taken;
      type.sizes_ready[entry.list] -= taken;
      members.push_back({entry.request, node});
    } while (subgraph.first_ready >= 0 && fits());
    Start(entry.request);  // may file its client's next request, which comes later in the queue
    if (subgraph.first_ready >= 0 || size >= type.sizes.max) return;
    (from_any ? next_any : next_own) = type.queue.Next(entry.list, position + 1);
  }
}

// The node is now in the worker's stream: what reads from it may follow it there.
void CellularScheduler::GiveOut(Member member, WorkerId worker) {
  LiveRequest& request = *requests_[member.slot];
  LiveNode& node = request.nodes[member.node];
  Subgraph& subgraph = request.subgraphs[node.subgraph];
  node.state = State::kInFlight;
  if (!node.tied) ++subgraph.pins;  // else the pin it had as a ready node becomes this one
  node.tied = false;
  subgraph.pinned = worker;
  ++request.in_flight;
  for (int32_t edge = node.first_edge; edge >= 0; edge = request.edges[edge].next) {
    LiveNode& reader = request.nodes[request.edges[edge].to];
    const bool first = reader.not_complete == reader.not_given;
    reader.tie = first || reader.tie == worker ? worker : kSeveralWorkers;
    if (--reader.not_given == 0) OfferIfReady(member.slot, request.edges[edge].to);
  }
  File(member.slot, node.subgraph);
}

Task CellularScheduler::Form(CellType index, WorkerId worker) {
  RunningTask running{.type = index, .worker = worker, .members = {}};
  if (!spare_.empty()) {
    running.members = std::move(spare_.back());
    spare_.pop_back();
  }
  TypeState& type = TypeOf(index);
  const int waiting = waiting_;
  Collect(type, worker, running.members);
  tasks_since_start_ = waiting_ < waiting ? 0 : tasks_since_start_ + 1;
  ++type.running_tasks;
  ++WorkerOf(worker).in_flight;

  Task task;
  task.id = next_task_++;
  task.type = index;
  task.worker = worker;
  task.nodes.reserve(running.members.size());
  for (const Member member : running.members) {
    const LiveRequest& request = *requests_[member.slot];
    task.nodes.push_back({request.id, member.node});
    task.rows += request.nodes[member.node].rows;
    GiveOut(member, worker);
  }
  last_requests_.Compare(task);
  running_.emplace(task.id, std::move(running));
  return task;
}

void CellularScheduler::EndNode(Member member) {
  LiveRequest& request = *requests_[member.slot];
  LiveNode& node = request.nodes[member.node];
  node.state = State::kComplete;
  --request.in_flight;
  --request.unfinished;
  --request.subgraphs[node.subgraph].pins;
  for (int32_t edge = node.first_edge; edge >= 0; edge = request.edges[edge].next) {
    LiveNode& reader = request.nodes[request.edges[edge].to];
    if (--reader.not_complete > 0) continue;
    if (reader.state == State::kWaiting) {
      OfferIfReady(member.slot, request.edges[edge].to);
    } else if (reader.tied) {
      reader.tied = false;
      --request.subgraphs[reader.subgraph].pins;
      File(member.slot, reader.subgraph);
    }
  }
  File(member.slot, node.subgraph);
}

std::vector<BatchRequestId> CellularScheduler::Complete(TaskId task, TimePoint /*now*/,
                                                        std::span<const Growth> grown) {
  const auto found = running_.find(task);
  assert(found != running_.end());
  RunningTask ended = std::move(found->second);
  running_.erase(found);
  --TypeOf(ended.type).running_tasks;
  --WorkerOf(ended.worker).in_flight;
  for (const Member member : ended.members) EndNode(member);
  for (const Growth& growth : grown) {
    const auto it = slots_.find(growth.request);
    if (it == slots_.end() || requests_[it->second]->leaving) continue;
    LiveRequest& request = *requests_[it->second];
    int phase = 0;
    for (const int32_t dependency : growth.dependencies) {
      phase = std::max(phase, phases_.Of(request.nodes[dependency].type) + 1);
    }
    phases_.Learn(growth.type, phase, [this](CellType type) { Learn(type); });
    const size_t subgraphs = request.subgraphs.size();
    const int32_t node = request.Append(growth.type, growth.rows, growth.dependencies);
    Enqueue(it->second, subgraphs);
    OfferIfReady(it->second, node);
  }
  std::vector<BatchRequestId> left;
  for (const Member member : ended.members) {
    const LiveRequest& request = *requests_[member.slot];
    if (request.in_flight > 0 || (request.unfinished > 0 && !request.leaving)) continue;
    const auto slot = slots_.find(request.id);
    if (slot == slots_.end() || slot->second != member.slot) continue;  // it has left above
    (request.expired ? expired_ : left).push_back(request.id);
    Free(member.slot);
  }
  ended.members.clear();
  spare_.push_back(std::move(ended.members));
  return left;
}

// Nothing more of the request is given out; it goes unless nodes of it are in flight.
void CellularScheduler::Leave(Slot slot) {
  LiveRequest& request = *requests_[slot];
  request.leaving = true;
  FileAll(slot);
  Start(slot);
  if (request.deadline) deadlines_.erase({*request.deadline, slot});
  request.deadline.reset();
  if (request.in_flight == 0) Free(slot);
}

void CellularScheduler::Free(Slot slot) {
  LiveRequest& request = *requests_[slot];
  if (request.deadline) deadlines_.erase({*request.deadline, slot});
  slots_.erase(request.id);
  for (const Subgraph& subgraph : request.subgraphs) {
    TypeOf(subgraph.type).queue.Remove(subgraph.position);
  }
  if (request.nodes.size() > kNodesKept) request = LiveRequest();
  free_.push_back(slot);
}

bool CellularScheduler::Cancel(BatchRequestId id, TimePoint /*now*/) {
  const auto found = slots_.find(id);
  if (found == slots_.end()) return true;
  const Slot slot = found->second;
  requests_[slot]->expired = false;
  if (!requests_[slot]->leaving) Leave(slot);
  return !slots_.contains(id);
}

void CellularScheduler::Expire(TimePoint now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const Slot slot = deadlines_.begin()->second;
    LiveRequest& request = *requests_[slot];
    request.expired = true;
    if (request.in_flight == 0) expired_.push_back(request.id);
    Leave(slot);
  }
}

std::vector<BatchRequestId> CellularScheduler::TakeExpired(TimePoint now) {
  Expire(now);
  return std::exchange(expired_, {});
}

std::optional<TimePoint> CellularScheduler::WakeAt(TimePoint now) const {
  const auto later = deadlines_.lower_bound({now + Duration(1), 0});
  return later == deadlines_.end() ? std::nullopt : std::optional(later->first);
}

}  // namespace chairlift
