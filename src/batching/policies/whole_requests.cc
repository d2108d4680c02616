#include "batching/policies/whole_requests.h"

#include <algorithm>
#include <cassert>

namespace chairlift {

void WholeRequestScheduler::Arrive(BatchRequestId id, const CellGraph& graph, ClientId client,
                                   TimePoint now, std::optional<TimePoint> deadline) {
  assert(graph.size() == 1 && !requests_.contains(id));
  auto owned = std::make_unique<Request>();
  Request& request = *owned;
  request.id = id;
  request.client = client;
  request.deadline = deadline;
  request.arrived = now;
  request.type = graph.type(0);
  request.rows = graph.rows(0);
  request.length = graph.length();
  request.place = {OrderOf(request), arrivals_++};
  request.held = !clients_.Add(client, id);
  if (client != 0) {
    uint64_t& latest = latest_[client];
    latest = request.place.first = std::max(request.place.first, latest);
  }
  if (deadline) deadlines_.emplace(*deadline, id);
  Queue& queue = queues_[request.type];
  if (queue.requests.empty() || request.place < queue.requests.begin()->first) {
    if (!queue.requests.empty()) heads_.erase({queue.requests.begin()->first, request.type});
    heads_.emplace(request.place, request.type);
  }
  queue.requests.emplace(request.place, &request);
  queue.size += request.size();
  ++waiting_;
  requests_.emplace(id, std::move(owned));
  Changed(request.type, queue);
}

void WholeRequestScheduler::Take(Request& request) {
  request.running = true;
  --waiting_;
  if (request.deadline) deadlines_.erase({*request.deadline, request.id});
  const auto found = queues_.find(request.type);
  Queue& queue = found->second;
  const auto place = queue.requests.find(request.place);
  const bool head = place == queue.requests.begin();
  queue.requests.erase(place);
  queue.size -= request.size();
  if (head) {
    heads_.erase({request.place, request.type});
    if (!queue.requests.empty()) heads_.emplace(queue.requests.begin()->first, request.type);
  }
  if (request.client != 0) {
    const std::optional<BatchRequestId> next = clients_.Remove(request.client, request.id);
    if (next) requests_.at(*next)->held = false;
    if (!clients_.Waits(request.client)) latest_.erase(request.client);
  }
  Changed(request.type, queue);
}

void WholeRequestScheduler::EraseIfEmpty(CellType type) {
  const auto found = queues_.find(type);
  if (found->second.requests.empty()) queues_.erase(found);
}

void WholeRequestScheduler::Leave(BatchRequestId id) {
  const auto found = requests_.find(id);
  Take(*found->second);
  EraseIfEmpty(found->second->type);
  requests_.erase(found);
}

bool WholeRequestScheduler::Cancel(BatchRequestId id, TimePoint /*now*/) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return true;
  if (found->second->running) return false;
  Leave(id);
  return true;
}

void WholeRequestScheduler::Expire(TimePoint now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const BatchRequestId id = deadlines_.begin()->second;
    expired_.push_back(id);
    Leave(id);
  }
}

std::vector<BatchRequestId> WholeRequestScheduler::TakeExpired(TimePoint now) {
  Expire(now);
  return std::exchange(expired_, {});
}

std::optional<Task> WholeRequestScheduler::Next(WorkerId worker, TimePoint now) {
  Expire(now);
  if (busy_.contains(worker) || heads_.empty() || BetterToHelp(now)) return std::nullopt;
  for (const auto& head : heads_) {
    const CellType type = head.second;
    std::vector<Request*> batch = Form(type, queues_.at(type), now);
    if (batch.empty()) continue;
    EraseIfEmpty(type);
    Task task;
    task.id = next_task_++;
    task.type = type;
    task.worker = worker;
    task.nodes.reserve(batch.size());
    for (const Request* request : batch) {
      task.nodes.push_back({request->id, 0});
      task.rows += request->rows;
      if (pads()) task.length = std::max(task.length, request->length);
    }
    busy_.insert(worker);
    task.by_team = by_team();
    running_.emplace(task.id,
                     Running{worker, type, task.rows, task.by_team, now, std::move(batch)});
    return task;
  }
  return std::nullopt;
}

std::vector<BatchRequestId> WholeRequestScheduler::Complete(TaskId task, TimePoint /*now*/,
                                                            std::span<const Growth> grown) {
  assert(grown.empty());
  (void)grown;
  const auto found = running_.find(task);
  assert(found != running_.end());
  busy_.erase(found->second.worker);
  std::vector<BatchRequestId> left;
  left.reserve(found->second.requests.size());
  for (const Request* request : found->second.requests) {
    left.push_back(request->id);
    requests_.erase(request->id);
  }
  running_.erase(found);
  return left;
}

std::optional<TimePoint> WholeRequestScheduler::WakeAt(TimePoint now) const {
  std::optional<TimePoint> wake;
  const auto later = deadlines_.lower_bound({now + Duration(1), 0});
  if (later != deadlines_.end()) wake = later->first;
  for (const auto& [type, queue] : queues_) {
    const std::optional<TimePoint> at = FormAt(type, queue, now);
    if (at && *at > now && (!wake || *at < *wake)) wake = at;
  }
  return wake;
}

}  // namespace chairlift
