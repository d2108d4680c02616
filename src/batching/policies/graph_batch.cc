#include "batching/policies/graph_batch.h"

#include <algorithm>
#include <cassert>

#include "base/status.h"

namespace chairlift {

using State = LiveNode::State;

// Requests with more nodes give their memory back.
constexpr size_t kNodesKept = 4096;

Status CheckGraphBatchOptions(const PolicyOptions& options) {
  if (options.max_batch_size < 1) {
    return InvalidArgument("max_batch_size is {}; it must be at least 1", options.max_batch_size);
  }
  if (options.max_tasks_to_submit < 1) {
    return InvalidArgument("max_tasks_to_submit is {}; it must be at least 1",
                           options.max_tasks_to_submit);
  }
  return absl::OkStatus();
}

GraphBatchScheduler::Outline GraphBatchScheduler::OutlineOf(const CellGraph& graph) const {
  Outline outline;
  outline.group = GroupOf(graph);
  std::vector<int32_t> place;                                 // by type, in outline.types
  std::vector<int> chain(static_cast<size_t>(graph.size()));  // of its type, that end with a node
  for (int32_t node = 0; node < graph.size(); ++node) {
    const CellType type = graph.type(node);
    if (type >= place.size()) place.resize(type + 1, -1);
    if (place[type] < 0) {
      place[type] = static_cast<int32_t>(outline.types.size());
      outline.types.push_back({.type = type, .first = node});
    }
    Outline::OfType& use = outline.types[place[type]];
    ++use.nodes;
    use.node_rows = std::max(use.node_rows, graph.rows(node));
    chain[node] = 1;
    for (const int32_t dependency : graph.dependencies(node)) {
      if (graph.type(dependency) == type)
        chain[node] = std::max(chain[node], chain[dependency] + 1);
    }
    use.longest_chain = std::max(use.longest_chain, chain[node]);
    if (graph.dependencies(node).empty()) outline.ready.push_back(node);
  }
  return outline;
}

struct GraphBatchScheduler::Prepared : PreparedGraph {
  LiveRequest request;
  Outline outline;
};

std::unique_ptr<PreparedGraph> GraphBatchScheduler::Prepare(const CellGraph& graph) const {
  auto prepared = std::make_unique<Prepared>();
  prepared->request.Assign(graph);
  prepared->outline = OutlineOf(graph);
  return prepared;
}

GraphBatchScheduler::Slot GraphBatchScheduler::Enter(BatchRequestId id, Outline outline,
                                                     const CellGraph& graph, ClientId client,
                                                     std::optional<TimePoint> deadline) {
  assert(graph.size() > 0 && !slots_.contains(id));
  for (const Outline::OfType& use : outline.types) {
    phases_.Learn(graph, use.first, [](CellType) {});
  }
  if (free_.empty()) {
    free_.push_back(static_cast<Slot>(requests_.size()));
    requests_.push_back(std::make_unique<Request>());
  }
  const Slot slot = free_.back();
  free_.pop_back();
  Request& request = *requests_[slot];
  request.id = id;
  request.client = client;
  request.deadline = deadline;
  request.started = request.leaving = false;
  request.outline = std::move(outline);
  request.arrival = arrivals_++;
  request.worker = kNoWorker;
  request.held = !clients_.Add(client, id);
  slots_.emplace(id, slot);
  if (deadline) deadlines_.emplace(*deadline, slot);
  ++waiting_;
  return slot;
}

void GraphBatchScheduler::Arrive(BatchRequestId id, const CellGraph& graph, ClientId client,
                                 TimePoint /*now*/, std::optional<TimePoint> deadline) {
  const Slot slot = Enter(id, OutlineOf(graph), graph, client, deadline);
  requests_[slot]->Assign(graph);
  if (!requests_[slot]->held) Enqueue(slot);
}

void GraphBatchScheduler::ArrivePrepared(BatchRequestId id, const CellGraph& graph,
                                         std::unique_ptr<PreparedGraph> prepared, ClientId client,
                                         TimePoint /*now*/, std::optional<TimePoint> deadline) {
  auto& ours = static_cast<Prepared&>(*prepared);
  const Slot slot = Enter(id, std::move(ours.outline), graph, client, deadline);
  requests_[slot]->SwapGraphs(ours.request);
  if (!requests_[slot]->held) Enqueue(slot);
}

void GraphBatchScheduler::Enqueue(Slot slot) {
  Request& request = *requests_[slot];
  request.held = false;
  groups_[request.outline.group].emplace(request.arrival, slot);
}

void GraphBatchScheduler::StopWaiting(Slot slot) {
  Request& request = *requests_[slot];
  request.started = true;
  --waiting_;
  if (request.deadline) deadlines_.erase({*request.deadline, slot});
  if (!request.held) {
    const auto group = groups_.find(request.outline.group);
    group->second.erase(request.arrival);
    if (group->second.empty()) groups_.erase(group);
  }
  const std::optional<BatchRequestId> next = clients_.Remove(request.client, request.id);
  if (next) Enqueue(slots_.at(*next));
}

void GraphBatchScheduler::AddNode(Batch& batch, Slot slot, int32_t index) {
  const LiveNode& node = requests_[slot]->nodes[index];
  TypeUse& use = batch.types[node.type];
  ++use.to_give;
  use.node_rows = std::max(use.node_rows, node.rows);
  use.requests.insert(slot);
}

void GraphBatchScheduler::OfferIfReady(Batch& batch, Slot slot, int32_t index) {
  LiveNode& node = requests_[slot]->nodes[index];
  if (node.state != State::kWaiting || node.not_given > 0) return;
  node.state = State::kReady;
  ++batch.types[node.type].ready;
  batch.ready.push_back({slot, index});
}

void GraphBatchScheduler::StartBatch(WorkerId worker) {
  auto group = groups_.lower_bound(turn_);
  if (group == groups_.end()) group = groups_.begin();
  if (group == groups_.end()) return;
  const Group key = group->first;
  if (key != turn_ || turn_left_ == 0) turn_left_ = group->second.size();
  turn_ = key;
  Batch& batch = batches_[worker];
  int64_t size = 0;
  // Requests that become free as others start join at the end of the group.
  while (group != groups_.end()) {
    const Slot slot = group->second.begin()->second;
    Request& request = *requests_[slot];
    const int32_t rows = request.nodes.back().size();
    if (size > 0 && size + rows > options_.max_batch_size) break;
    size += rows;
    StopWaiting(slot);
    request.worker = worker;
    batch.requests.push_back(slot);
    for (const Outline::OfType& added : request.outline.types) {
      TypeUse& use = batch.types[added.type];
      use.to_give += added.nodes;
      use.node_rows = std::max(use.node_rows, added.node_rows);
      use.longest_chain = std::max(use.longest_chain, added.longest_chain);
      use.requests.insert(slot);
    }
    for (const int32_t node : request.outline.ready) OfferIfReady(batch, slot, node);
    group = groups_.find(key);
  }
  turn_left_ -= std::min(turn_left_, batch.requests.size());
  if (turn_left_ < static_cast<size_t>(options_.max_batch_size)) {
    turn_ = key + 1;
    turn_left_ = 0;
  }
}

std::optional<Task> GraphBatchScheduler::Next(WorkerId worker, TimePoint now) {
  Expire(now);
  if (!batches_.contains(worker)) StartBatch(worker);
  const auto found = batches_.find(worker);
  if (found == batches_.end()) return std::nullopt;
  Batch& batch = found->second;
  if (batch.in_flight >= options_.max_tasks_to_submit) return std::nullopt;
  if (batch.steps.empty()) FormSteps(batch);
  if (batch.steps.empty()) return std::nullopt;
  Step step = std::move(batch.steps.front());
  batch.steps.pop_front();
  return GiveOut(std::move(step), batch, worker);
}

Task GraphBatchScheduler::GiveOut(Step step, Batch& batch, WorkerId worker) {
  Task task;
  task.id = next_task_++;
  task.type = step.type;
  task.worker = worker;
  task.padding_rows = step.padding_rows;
  batch.types[step.type].to_give -= static_cast<int>(step.nodes.size());
  for (const Member member : step.nodes) {
    Request& request = *requests_[member.slot];
    LiveNode& node = request.nodes[member.node];
    if (request.leaving) {
      task.padding_rows += node.size();
    } else {
      task.nodes.push_back({request.id, member.node});
      task.rows += node.rows;
    }
    node.state = State::kInFlight;
    ++request.in_flight;
    for (int32_t edge = node.first_edge; edge >= 0; edge = request.edges[edge].next) {
      const int32_t reader = request.edges[edge].to;
      --request.nodes[reader].not_given;
      OfferIfReady(batch, member.slot, reader);
    }
  }
  ++batch.in_flight;
  last_requests_.Compare(task);
  running_.emplace(task.id, RunningTask{worker, std::move(step.nodes)});
  return task;
}

std::vector<BatchRequestId> GraphBatchScheduler::Complete(TaskId task, TimePoint /*now*/,
                                                          std::span<const Growth> grown) {
  const auto found = running_.find(task);
  assert(found != running_.end());
  const RunningTask ended = std::move(found->second);
  running_.erase(found);
  Batch& batch = batches_.at(ended.worker);
  --batch.in_flight;
  for (const Member member : ended.nodes) {
    Request& request = *requests_[member.slot];
    request.nodes[member.node].state = State::kComplete;
    --request.in_flight;
    --request.unfinished;
  }
  for (const Growth& growth : grown) {
    const auto it = slots_.find(growth.request);
    if (it == slots_.end() || requests_[it->second]->leaving) continue;
    const int32_t node =
        requests_[it->second]->Append(growth.type, growth.rows, growth.dependencies);
    AddNode(batch, it->second, node);
    OfferIfReady(batch, it->second, node);
  }

  std::vector<BatchRequestId> left;
  if (batch.in_flight > 0 || !batch.steps.empty()) return left;
  FormSteps(batch);
  if (!batch.steps.empty()) return left;
  for (const Slot slot : batch.requests) {
    left.push_back(requests_[slot]->id);
    Free(slot);
  }
  batches_.erase(ended.worker);
  return left;
}

void GraphBatchScheduler::Free(Slot slot) {
  Request& request = *requests_[slot];
  slots_.erase(request.id);
  if (request.nodes.size() > kNodesKept) request = Request();
  free_.push_back(slot);
}

bool GraphBatchScheduler::Cancel(BatchRequestId id, TimePoint /*now*/) {
  const auto found = slots_.find(id);
  if (found == slots_.end()) return true;
  const Slot slot = found->second;
  Request& request = *requests_[slot];
  if (request.leaving) return false;
  if (request.worker == kNoWorker) {
    StopWaiting(slot);
    Free(slot);
    return true;
  }
  request.leaving = true;
  return false;
}

void GraphBatchScheduler::Expire(TimePoint now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const Slot slot = deadlines_.begin()->second;
    expired_.push_back(requests_[slot]->id);
    StopWaiting(slot);
    Free(slot);
  }
}

std::vector<BatchRequestId> GraphBatchScheduler::TakeExpired(TimePoint now) {
  Expire(now);
  return std::exchange(expired_, {});
}

std::optional<TimePoint> GraphBatchScheduler::WakeAt(TimePoint now) const {
  const auto later = deadlines_.lower_bound({now + Duration(1), 0});
  return later == deadlines_.end() ? std::nullopt : std::optional(later->first);
}

}  // namespace chairlift
