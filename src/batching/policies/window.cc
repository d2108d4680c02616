#include "batching/policies/window.h"

#include <algorithm>
#include <cassert>

#include "base/status.h"

namespace chairlift {

StatusOr<std::unique_ptr<Scheduler>> MakeWindowScheduler(const PolicyOptions& options) {
  if (options.max_batch_size < 1) {
    return InvalidArgument("max_batch_size is {}; it must be at least 1", options.max_batch_size);
  }
  if (options.queue_delay < Duration::zero()) {
    return InvalidArgument("queue_delay_us is {}; it must not be negative",
                           options.queue_delay.count() / 1000);
  }
  for (int size : options.preferred_batch_sizes) {
    if (size < 1 || size > options.max_batch_size) {
      return InvalidArgument(
          "preferred_batch_sizes has {}; each must be in [1, {}], the max_batch_size", size,
          options.max_batch_size);
    }
  }
  return std::make_unique<WindowScheduler>(options);
}

WindowScheduler::WindowScheduler(const PolicyOptions& options) : options_(options) {}

void WindowScheduler::Append(Request& request, CellType type, int32_t rows,
                             std::span<const int32_t> dependencies) {
  const auto index = static_cast<int32_t>(request.nodes.size());
  Node added{.type = type, .rows = rows, .blocked_by = 0, .successors = {}, .queued_as = {}};
  for (int32_t dependency : dependencies) {
    assert(dependency >= 0 && dependency < index);
    Node& earlier = request.nodes[dependency];
    if (earlier.ended) continue;
    earlier.successors.push_back(index);
    ++added.blocked_by;
  }
  request.nodes.push_back(std::move(added));
  ++request.unfinished;
}

void WindowScheduler::Arrive(BatchRequestId id, const CellGraph& graph, ClientId client,
                             TimePoint now, std::optional<TimePoint> deadline) {
  assert(graph.size() > 0 && !requests_.contains(id));
  Request& request = requests_[id];
  request.client = client;
  request.deadline = deadline;
  request.length = graph.length();
  for (int32_t node = 0; node < graph.size(); ++node) {
    Append(request, graph.type(node), graph.rows(node), graph.dependencies(node));
  }
  ++waiting_;
  if (client != 0) clients_[client].push_back(id);
  if (deadline) deadlines_.emplace(*deadline, id);
  for (size_t i = 0; i < request.nodes.size(); ++i) {
    if (request.nodes[i].blocked_by == 0) Enqueue(id, static_cast<int32_t>(i), now);
  }
}

void WindowScheduler::Enqueue(BatchRequestId id, int32_t index, TimePoint now) {
  Node& node = requests_.at(id).nodes[index];
  const Sequence sequence = next_sequence_++;
  node.queued_as = sequence;
  TypeQueue& queue = queues_[node.type];
  if (queue.empty()) heads_.emplace(sequence, node.type);
  queue.emplace_hint(queue.end(), sequence, Entry{{id, index}, node.rows, now});
}

void WindowScheduler::Dequeue(CellType type, Sequence sequence) {
  const auto found = queues_.find(type);
  TypeQueue& queue = found->second;
  const bool was_head = queue.begin()->first == sequence;
  queue.erase(sequence);
  if (was_head) {
    heads_.erase({sequence, type});
    if (!queue.empty()) heads_.emplace(queue.begin()->first, type);
  }
  if (queue.empty()) queues_.erase(found);
}

void WindowScheduler::MarkStarted(BatchRequestId id, Request& request) {
  if (request.started) return;
  request.started = true;
  --waiting_;
  if (request.deadline) deadlines_.erase({*request.deadline, id});
  if (request.client == 0) return;
  const auto client = clients_.find(request.client);
  std::deque<BatchRequestId>& order = client->second;
  order.erase(std::find(order.begin(), order.end(), id));
  if (order.empty()) clients_.erase(client);
}

void WindowScheduler::Leave(BatchRequestId id, Request& request) {
  for (Node& node : request.nodes) {
    if (node.queued_as) Dequeue(node.type, *node.queued_as);
    node.queued_as.reset();
  }
  MarkStarted(id, request);
  request.leaving = true;
  EraseIfDone(id);
}

bool WindowScheduler::EraseIfDone(BatchRequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return false;
  const Request& request = found->second;
  if (request.in_flight > 0 || (request.unfinished > 0 && !request.leaving)) return false;
  requests_.erase(found);
  return true;
}

bool WindowScheduler::Cancel(BatchRequestId id, TimePoint /*now*/) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return true;
  if (!found->second.leaving) Leave(id, found->second);
  return !requests_.contains(id);
}

void WindowScheduler::Expire(TimePoint now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const BatchRequestId id = deadlines_.begin()->second;
    expired_.push_back(id);
    Leave(id, requests_.at(id));
  }
}

std::vector<BatchRequestId> WindowScheduler::TakeExpired(TimePoint now) {
  Expire(now);
  return std::exchange(expired_, {});
}

WindowScheduler::Formation WindowScheduler::Form(const TypeQueue& queue, TimePoint now) const {
  Formation formation;
  int rows = 0;
  bool full = false;
  size_t preferred = 0;  // entries of the longest start with a preferred size
  absl::flat_hash_map<ClientId, size_t> taken;  // of each client's order
  for (const auto& [sequence, entry] : queue) {
    const Request& request = requests_.at(entry.node.request);
    if (!request.started && request.client != 0) {
      const std::deque<BatchRequestId>& order = clients_.at(request.client);
      size_t& position = taken[request.client];
      // Another node of a request already taken into this task may follow it.
      const bool again = position > 0 && order[position - 1] == entry.node.request;
      if (!again && order[position] != entry.node.request) continue;
      if (!again) ++position;
    }
    if (!formation.oldest) formation.oldest = entry.ready_at;
    const int size = SizeOf(entry.rows);
    if (!formation.entries.empty() && rows + size > options_.max_batch_size) {
      full = true;
      break;
    }
    formation.entries.push_back(sequence);
    rows += size;
    const auto& sizes = options_.preferred_batch_sizes;
    if (std::find(sizes.begin(), sizes.end(), rows) != sizes.end()) {
      preferred = formation.entries.size();
    }
    if (rows >= options_.max_batch_size) {
      full = true;
      break;
    }
  }
  if (preferred > 0) {
    formation.entries.resize(preferred);
  } else if (!full && formation.oldest && *formation.oldest + options_.queue_delay > now) {
    formation.entries.clear();
  }
  return formation;
}

std::optional<Task> WindowScheduler::Next(WorkerId worker, TimePoint now) {
  Expire(now);
  for (const auto& [head, type] : heads_) {
    const TypeQueue& queue = queues_.at(type);
    const Formation formation = Form(queue, now);
    if (formation.entries.empty()) continue;
    Task task{.id = next_task_++, .type = type, .worker = worker, .rows = 0, .nodes = {}};
    task.nodes.reserve(formation.entries.size());
    for (Sequence sequence : formation.entries) {
      const Entry& entry = queues_.at(task.type).at(sequence);
      task.nodes.push_back(entry.node);
      task.rows += entry.rows;
      Dequeue(task.type, sequence);
    }
    for (const NodeRef& ref : task.nodes) {
      Request& request = requests_.at(ref.request);
      request.nodes[ref.node].queued_as.reset();
      ++request.in_flight;
      task.length = std::max(task.length, request.length);
      MarkStarted(ref.request, request);
    }
    tasks_.emplace(task.id, task.nodes);
    return task;
  }
  return std::nullopt;
}

std::vector<BatchRequestId> WindowScheduler::Complete(TaskId task, TimePoint now,
                                                      std::span<const Growth> grown) {
  const auto found = tasks_.find(task);
  assert(found != tasks_.end());
  const std::vector<NodeRef> nodes = std::move(found->second);
  tasks_.erase(found);
  for (const NodeRef& ref : nodes) {
    Request& request = requests_.at(ref.request);
    request.nodes[ref.node].ended = true;
    --request.in_flight;
    --request.unfinished;
    if (request.leaving) continue;
    for (int32_t successor : request.nodes[ref.node].successors) {
      if (--request.nodes[successor].blocked_by == 0) Enqueue(ref.request, successor, now);
    }
  }
  for (const Growth& growth : grown) {
    const auto it = requests_.find(growth.request);
    if (it == requests_.end() || it->second.leaving) continue;
    Append(it->second, growth.type, growth.rows, growth.dependencies);
    if (it->second.nodes.back().blocked_by == 0) {
      Enqueue(growth.request, static_cast<int32_t>(it->second.nodes.size()) - 1, now);
    }
  }
  std::vector<BatchRequestId> left;
  for (const NodeRef& ref : nodes) {
    if (EraseIfDone(ref.request)) left.push_back(ref.request);
  }
  return left;
}

std::optional<TimePoint> WindowScheduler::WakeAt(TimePoint now) const {
  std::optional<TimePoint> wake;
  const auto later = deadlines_.lower_bound({now + Duration(1), 0});
  if (later != deadlines_.end()) wake = later->first;
  if (options_.queue_delay == Duration::zero()) return wake;
  for (const auto& [type, queue] : queues_) {
    const Formation formation = Form(queue, now);
    if (!formation.oldest) continue;
    const TimePoint due = *formation.oldest + options_.queue_delay;
    if (due > now && (!wake || due < *wake)) wake = due;
  }
  return wake;
}

}  // namespace chairlift
