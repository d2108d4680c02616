#include "batching/request_table.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/prefetch.h"

namespace chairlift {
namespace {

// Larger requests free their memory.
constexpr size_t kNodesKept = 4096;

}  // namespace

struct RequestTable::Prepared : PreparedGraph {
  LiveGraph graph;
};

RequestTable::Slot RequestTable::Enter(BatchRequestId id, const CellGraph& graph, ClientId client,
                                       TimePoint now, std::optional<TimePoint> deadline) {
  assert(graph.size() > 0 && !slots_.contains(id));
  now_ = now;
  if (free_.empty()) {
    free_.push_back(static_cast<Slot>(requests_.size()));
    requests_.push_back(std::make_unique<Request>());
  }
  const Slot slot = free_.back();
  free_.pop_back();
  Request& request = *requests_[slot];
  request.id = id;
  request.client = client;
  request.arrival = arrivals_++;
  request.arrived = now;
  request.length = graph.length();
  request.present = true;
  request.started = request.leaving = request.expired = false;
  if (client != 0) {
    const auto [last, first] = clients_.try_emplace(client, slot);
    if (!first) {
      request.earlier = std::exchange(last->second, slot);
      requests_[request.earlier]->later = slot;
    }
  }
  slots_.emplace(id, slot);
  if (deadline) request.deadline = deadlines_.emplace_hint(deadlines_.end(), *deadline, slot);
  ++waiting_;
  return slot;
}

void RequestTable::Announce(Slot slot, const CellGraph& graph) {
  Arrived(slot, graph);
  offered_.clear();
  for (const int32_t root : requests_[slot]->roots) offered_.push_back({slot, root});
  Ready(offered_);
}

void RequestTable::Arrive(BatchRequestId id, const CellGraph& graph, ClientId client, TimePoint now,
                          std::optional<TimePoint> deadline) {
  const Slot slot = Enter(id, graph, client, now, deadline);
  requests_[slot]->Assign(graph);
  Announce(slot, graph);
}

std::unique_ptr<PreparedGraph> RequestTable::Prepare(const CellGraph& graph) const {
  auto prepared = std::make_unique<Prepared>();
  prepared->graph.Assign(graph);
  return prepared;
}

void RequestTable::ArrivePrepared(BatchRequestId id, const CellGraph& graph,
                                  std::unique_ptr<PreparedGraph> prepared, ClientId client,
                                  TimePoint now, std::optional<TimePoint> deadline) {
  const Slot slot = Enter(id, graph, client, now, deadline);
  requests_[slot]->Swap(static_cast<Prepared&>(*prepared).graph);
  Announce(slot, graph);
}

void RequestTable::DropDeadline(Request& request) {
  if (request.deadline) deadlines_.erase(*request.deadline);
  request.deadline.reset();
}

void RequestTable::Start(Slot slot) {
  Request& request = *requests_[slot];
  if (request.started) return;
  request.started = true;
  --waiting_;
  if (!rules_.deadline_until_end) DropDeadline(request);
  if (request.client == 0) return;
  const Slot earlier = std::exchange(request.earlier, kNoSlot);
  const Slot later = std::exchange(request.later, kNoSlot);
  if (earlier != kNoSlot) requests_[earlier]->later = later;
  if (later != kNoSlot) {
    requests_[later]->earlier = earlier;
    if (earlier == kNoSlot) Released(later);
  } else if (earlier != kNoSlot) {
    clients_[request.client] = earlier;
  } else {
    clients_.erase(request.client);
  }
}

std::vector<RequestTable::Member> RequestTable::TakeList() {
  if (spare_.empty()) return {};
  std::vector<Member> list = std::move(spare_.back());
  spare_.pop_back();
  return list;
}

std::optional<Task> RequestTable::Next(WorkerId worker, TimePoint now) {
  Expire(now);
  return NextTask(worker);
}

int32_t RequestTable::AddSteps(CellType type, WorkerId worker, const CostModel* costs,
                               Duration slice, Waiting waiting, std::vector<Member>& members,
                               int32_t padding_rows, int32_t most) {
  if (costs == nullptr) return 1;
  int32_t rows = padding_rows;
  for (const Member member : members) rows += node(member).rows;
  const Duration fixed = costs->FixedCost(type);
  const Duration step = costs->Cost(type, rows, 0) - fixed;
  const bool short_enough = step > Duration(0) && step <= slice;
  if (!short_enough || fixed == Duration(0)) return 1;
  most = static_cast<int32_t>(std::min<int64_t>(1 + slice / step, std::min(most, kMostSteps)));
  rows_by_step_.assign(static_cast<size_t>(most), 0);
  for (Member& member : members) {
    member.steps = request(member.slot).Steps(member.node, worker, most);
    ++rows_by_step_[static_cast<size_t>(member.steps) - 1];  // those that end there
  }
  for (size_t s = rows_by_step_.size() - 1; s > 0; --s) rows_by_step_[s - 1] += rows_by_step_[s];
  int32_t steps = most;
  while (steps > 1 && rows_by_step_[static_cast<size_t>(steps) - 1] == 0) --steps;
  if (waiting == Waiting::kForPlaces) {
    // Adds steps while a row of the next step costs no more than a row so far, including the task's
    // fixed cost.
    const int32_t all = rows_by_step_[0];
    Duration spent = fixed + step;
    int64_t row_steps = all;
    int32_t last = 1;
    for (; last < steps; ++last) {
      const int32_t left = rows_by_step_[static_cast<size_t>(last)];
      const Duration next = costs->Cost(type, left, 0) - fixed;
      if (next * row_steps > spent * left) break;
      spent += next;
      row_steps += left;
    }
    steps = last;
  }
  if (steps == 1) {
    for (Member& member : members) member.steps = 1;
    return 1;
  }
  // Stable sort by steps in descending order. rows_by_step_[s] is the first index for s steps: the
  // number of members with more.
  unordered_.swap(members);
  members.resize(unordered_.size());
  int32_t first = 0;
  for (Member member : unordered_) {
    const bool to_the_end = member.steps >= steps;
    if (to_the_end) member.steps = steps;
    int32_t& place = to_the_end ? first : rows_by_step_[static_cast<size_t>(member.steps)];
    members[static_cast<size_t>(place++)] = member;
  }
  return steps;
}

Task RequestTable::Give(CellType type, WorkerId worker, std::vector<Member> members) {
  Task task;
  task.id = next_task_++;
  task.type = type;
  task.worker = worker;
  task.nodes.reserve(members.size());
  offered_.clear();
  for (const Member member : members) {
    Request& request = *requests_[member.slot];
    if (!request.started) Start(member.slot);
    const LiveNode& node = request.nodes[member.node];
    assert((node.divisible && !member.set_back) == (member.rows > 0) && member.rows <= node.rows);
    if (request.leaving) {
      task.padding_rows += node.size();
    } else {
      task.nodes.push_back({request.id, node.next(), member.steps, member.rows, member.set_back});
      if (!member.set_back) task.rows += member.rows > 0 ? member.rows : node.rows;
    }
    ++request.in_flight;
    request.Give(member.node, member.steps, worker, [&](int32_t reader) {
      offered_.push_back({member.slot, reader});
    });
  }
  running_.emplace(task.id, Running{type, worker, std::move(members)});
  if (!offered_.empty()) Ready(offered_);
  return task;
}

std::vector<BatchRequestId> RequestTable::Complete(TaskId task, TimePoint now,
                                                   std::span<const Growth> grown) {
  now_ = now;
  const auto found = running_.find(task);
  assert(found != running_.end());
  Running ended = std::move(found->second);
  running_.erase(found);
  for (const Member member : ended.members) Prefetch(requests_[member.slot].get(), sizeof(Request));
  for (const Member member : ended.members) {
    const Request& request = *requests_[member.slot];
    Prefetch(request.nodes.data() + member.node, sizeof(LiveNode));
    Prefetch(request.subgraphs.data(), sizeof(Subgraph));
  }
  Ended(ended);
  offered_.clear();
  for (const Member member : ended.members) {
    Request& request = *requests_[member.slot];
    --request.in_flight;
    const bool goes_on = !request.leaving || !rules_.stops_between_nodes;
    const auto before = static_cast<std::ptrdiff_t>(offered_.size());
    request.End(member.node, member.steps, [&](int32_t reader) {
      if (goes_on) offered_.push_back({member.slot, reader});
    });
    if (rules_.first_reader_first) std::reverse(offered_.begin() + before, offered_.end());
  }
  for (const Growth& growth : grown) {
    const auto it = slots_.find(growth.request);
    if (it == slots_.end()) continue;
    Request& request = *requests_[it->second];
    if (request.leaving) continue;
    const int32_t node = request.Append({.type = growth.type,
                                         .rows = growth.rows,
                                         .first = request.size,
                                         .count = growth.count,
                                         .follows = growth.follows,
                                         .dependencies = growth.dependencies,
                                         .divisible = growth.divisible});
    Grew(it->second, node, growth.dependencies);
    if (request.nodes[node].not_given == 0) offered_.push_back({it->second, node});
  }
  if (!offered_.empty()) Ready(offered_);
  std::vector<BatchRequestId> left;
  CollectLeft(ended, left);
  ended.members.clear();
  spare_.push_back(std::move(ended.members));
  return left;
}

void RequestTable::CollectLeft(const Running& task, std::vector<BatchRequestId>& left) {
  for (const Member member : task.members) {
    const Request& request = *requests_[member.slot];
    // Several of the task's nodes may belong to one request.
    if (!request.present || request.in_flight > 0) continue;
    if (request.unfinished == 0 || request.leaving) LetGo(member.slot, left);
  }
}

void RequestTable::LetGo(Slot slot, std::vector<BatchRequestId>& left) {
  const Request& request = *requests_[slot];
  (request.expired ? expired_ : left).push_back(request.id);
  if (!request.leaving || !rules_.stops_between_nodes) Gone(slot);
  Free(slot);
}

void RequestTable::Free(Slot slot) {
  Request& request = *requests_[slot];
  DropDeadline(request);
  slots_.erase(request.id);
  request.present = false;
  if (request.nodes.size() > kNodesKept) request = Request();
  free_.push_back(slot);
}

void RequestTable::Leave(Slot slot) {
  Request& request = *requests_[slot];
  request.leaving = true;
  Gone(slot);
  Start(slot);
  DropDeadline(request);
  if (request.in_flight == 0) Free(slot);
}

bool RequestTable::Cancel(BatchRequestId id, TimePoint now) {
  now_ = now;
  const auto found = slots_.find(id);
  if (found == slots_.end()) {
    std::erase(expired_, id);
    return true;
  }
  const Slot slot = found->second;
  Request& request = *requests_[slot];
  request.expired = false;
  if (request.started && !rules_.stops_between_nodes) {
    request.leaving = true;
  } else if (!request.leaving) {
    Leave(slot);
  }
  return !request.present;
}

void RequestTable::Expire(TimePoint now) {
  now_ = now;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const Slot slot = deadlines_.begin()->second;
    Request& request = *requests_[slot];
    request.expired = true;
    if (request.in_flight == 0) expired_.push_back(request.id);
    Leave(slot);
  }
}

std::vector<BatchRequestId> RequestTable::TakeExpired(TimePoint now) {
  Expire(now);
  return std::exchange(expired_, {});
}

std::optional<TimePoint> RequestTable::WakeAt(TimePoint now) const {
  std::optional<TimePoint> wake = FormsAt(now);
  const auto next = deadlines_.upper_bound(now);
  if (next != deadlines_.end() && (!wake || next->first < *wake)) wake = next->first;
  return wake;
}

}  // namespace chairlift
