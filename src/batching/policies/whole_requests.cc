#include "batching/policies/whole_requests.h"

#include <algorithm>
#include <cassert>

namespace chairlift {

WholeRequestScheduler::Entry& WholeRequestScheduler::EntryOf(Member member) {
  while (static_cast<Slot>(nodes_.size()) <= member.slot) nodes_.emplace_back();
  Nodes& nodes = nodes_[member.slot];
  if (member.node == 0) return nodes.first;
  while (static_cast<int32_t>(nodes.others.size()) < member.node) nodes.others.emplace_back();
  return nodes.others[member.node - 1];
}

void WholeRequestScheduler::Arrived(Slot slot, const CellGraph& graph) {
  if (!takes_turns()) return;
  while (static_cast<Slot>(nodes_.size()) <= slot) nodes_.emplace_back();
  nodes_[slot].turn = graph.turn();
}

void WholeRequestScheduler::Ready(std::span<const Member> nodes) {
  for (const Member member : nodes) {
    if (node(member).not_complete > 0) continue;
    const Request& of = request(member.slot);
    Entry& entry = EntryOf(member);
    entry = {.node = member,
             .ready_at = now(),
             .type = node(member).type,
             .size = node(member).size(),
             .length = of.length,
             .ready = ++ready_};
    const uint64_t turn = nodes_[member.slot].turn;
    // Requests of a client that keeps their order do not take turns. Nor does the first node of a
    // request with a separate turn: no node of that turn comes before it.
    entry.in_line = takes_turns() && of.client == 0 && (turn != 0 || member.node > 0);
    if (entry.in_line) {
      entry.turn = turn != 0 ? turn : ~static_cast<uint64_t>(member.slot);
      const auto [line, first] = lines_.try_emplace({entry.turn, entry.type});
      if (!first) {
        line->second.emplace(entry.ready, &entry);
        Queue& queue = queues_.at(entry.type);
        queue.size += entry.size;
        Changed(entry.type, queue);
        continue;
      }
    }
    queues_[entry.type].size += entry.size;
    Enqueue(entry);
  }
}

void WholeRequestScheduler::Enqueue(Entry& entry) {
  const Request& of = request(entry.node.slot);
  Nodes& nodes = nodes_[entry.node.slot];
  entry.queued = true;
  entry.place = {OrderOf(entry), entry.ready};
  if (of.held()) entry.place.first = std::max(entry.place.first, nodes_[of.earlier].order);
  nodes.order = std::max(nodes.order, entry.place.first);
  Queue& queue = queues_.at(entry.type);
  if (queue.entries.empty() || entry.place < queue.entries.begin()->first) {
    if (!queue.entries.empty()) heads_.erase({queue.entries.begin()->first, entry.type});
    heads_.emplace(entry.place, entry.type);
  }
  entry.at = queue.entries.emplace_hint(queue.entries.end(), entry.place, &entry);
  Changed(entry.type, queue);
}

void WholeRequestScheduler::LeaveLine(Entry& entry) {
  const auto line = lines_.find({entry.turn, entry.type});
  if (!entry.in_line || line == lines_.end() || line->second.erase(entry.ready) == 0) return;
  Queue& queue = queues_.at(entry.type);
  queue.size -= entry.size;
  Changed(entry.type, queue);
}

void WholeRequestScheduler::Unqueue(Entry& entry) {
  entry.queued = false;
  Queue& queue = queues_.at(entry.type);
  const bool head = entry.at == queue.entries.begin();
  queue.entries.erase(entry.at);
  queue.size -= entry.size;
  if (head) {
    auto place = heads_.extract({entry.place, entry.type});
    if (!queue.entries.empty()) {
      place.value().first = queue.entries.begin()->first;
      heads_.insert(std::move(place));
    }
  }
  Changed(entry.type, queue);
  follower_ = nullptr;
  if (!entry.in_line) return;
  const auto line = lines_.find({entry.turn, entry.type});
  if (line->second.empty()) {
    lines_.erase(line);
    return;
  }
  Entry& next = *line->second.begin()->second;
  line->second.erase(line->second.begin());
  Enqueue(next);
  follower_ = &next;
}

RequestTable::Member WholeRequestScheduler::Take(Entry& entry) {
  Unqueue(entry);
  Start(entry.node.slot);
  return entry.node;
}

void WholeRequestScheduler::EraseIfEmpty(CellType type) {
  const auto found = queues_.find(type);
  if (found->second.entries.empty()) queues_.erase(found);
}

void WholeRequestScheduler::Gone(Slot slot) {
  if (static_cast<Slot>(nodes_.size()) <= slot) return;  // none of its nodes became ready
  Nodes& nodes = nodes_[slot];
  const auto leave = [this](Entry& entry) {
    if (!entry.queued) return;
    Unqueue(entry);
    EraseIfEmpty(entry.type);
  };
  LeaveLine(nodes.first);
  for (Entry& entry : nodes.others) LeaveLine(entry);
  leave(nodes.first);
  for (Entry& entry : nodes.others) leave(entry);
  if (!nodes.others.empty()) nodes.others.clear();
  nodes.order = 0;
}

std::optional<Task> WholeRequestScheduler::NextTask(WorkerId worker) {
  if (busy_.contains(worker) || heads_.empty() || BetterToHelp()) return std::nullopt;
  for (const auto& head : heads_) {
    const CellType type = head.second;
    std::vector<Member> batch = Form(type, queues_.at(type));
    if (batch.empty()) continue;
    EraseIfEmpty(type);
    int32_t length = 0;
    for (const Member member : batch) length = std::max(length, request(member.slot).length);
    Task task = Give(type, worker, std::move(batch));
    if (pads()) task.length = length;
    task.by_team = by_team();
    busy_[worker] = {type, task.rows, task.by_team, now()};
    return task;
  }
  return std::nullopt;
}

std::optional<TimePoint> WholeRequestScheduler::FormsAt(TimePoint now) const {
  std::optional<TimePoint> wake;
  for (const auto& [type, queue] : queues_) {
    const std::optional<TimePoint> at = FormAt(type, queue);
    if (at && *at > now && (!wake || *at < *wake)) wake = at;
  }
  return wake;
}

}  // namespace chairlift
