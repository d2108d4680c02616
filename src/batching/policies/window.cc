#include "batching/policies/window.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "batching/request_table.h"

namespace chairlift {
namespace {

class WindowScheduler final : public RequestTable {
 public:
  explicit WindowScheduler(const PolicyOptions& options)
      : RequestTable({.first_reader_first = true}), options_(options) {}

 private:
  // Numbers ready nodes, from 1, in the order they became ready.
  using Sequence = uint64_t;
  struct Entry {
    Member node;
    TimePoint ready_at;
  };
  using TypeQueue = std::map<Sequence, Entry>;
  // How many of a queue's entries make a task now, skipping those whose client has an earlier
  // request that has not started.
  struct Formation {
    std::vector<TypeQueue::const_iterator> entries;
    std::optional<TimePoint> oldest;  // when the first that may start became ready
  };

  std::optional<Task> NextTask(WorkerId worker) override;
  void Ready(std::span<const Member> nodes) override;
  void Gone(Slot slot) override;
  std::optional<TimePoint> FormsAt(TimePoint now) const override;

  Sequence& QueuedAs(Member member);
  // Takes entries out of the type's queue, which goes with its last one.
  void Dequeue(CellType type, std::span<const TypeQueue::const_iterator> entries);
  Formation Form(const TypeQueue& queue, TimePoint now) const;

  const PolicyOptions options_;
  Sequence next_sequence_ = 1;
  std::vector<std::vector<Sequence>> queued_as_;     // by slot, node; 0: in no queue
  absl::flat_hash_map<CellType, TypeQueue> queues_;  // none is empty
  std::set<std::pair<Sequence, CellType>> heads_;    // the first entry of every queue
};

WindowScheduler::Sequence& WindowScheduler::QueuedAs(Member member) {
  const auto slot = static_cast<size_t>(member.slot);
  const auto index = static_cast<size_t>(member.node);
  if (slot >= queued_as_.size()) queued_as_.resize(slot + 1);
  if (index >= queued_as_[slot].size()) queued_as_[slot].resize(index + 1);
  return queued_as_[slot][index];
}

void WindowScheduler::Ready(std::span<const Member> nodes) {
  for (const Member member : nodes) {
    if (node(member).not_complete > 0) continue;
    const CellType type = node(member).type;
    const Sequence sequence = next_sequence_++;
    QueuedAs(member) = sequence;
    TypeQueue& queue = queues_[type];
    if (queue.empty()) heads_.emplace(sequence, type);
    queue.emplace_hint(queue.end(), sequence, Entry{member, now()});
  }
}

void WindowScheduler::Dequeue(CellType type, std::span<const TypeQueue::const_iterator> entries) {
  const auto found = queues_.find(type);
  TypeQueue& queue = found->second;
  const Sequence head = queue.begin()->first;
  for (const TypeQueue::const_iterator entry : entries) {
    QueuedAs(entry->second.node) = 0;
    queue.erase(entry);
  }
  if (!queue.empty() && queue.begin()->first == head) return;
  heads_.erase({head, type});
  if (queue.empty()) {
    queues_.erase(found);
  } else {
    heads_.emplace(queue.begin()->first, type);
  }
}

void WindowScheduler::Gone(Slot slot) {
  std::vector<Sequence>& queued = queued_as_[slot];
  for (size_t i = 0; request(slot).unfinished > 0 && i < queued.size(); ++i) {
    if (queued[i] == 0) continue;
    const CellType type = request(slot).nodes[i].type;
    const TypeQueue::const_iterator entry = queues_.at(type).find(queued[i]);
    Dequeue(type, {&entry, 1});
  }
  queued.clear();
}

WindowScheduler::Formation WindowScheduler::Form(const TypeQueue& queue, TimePoint now) const {
  Formation formation;
  int rows = 0;
  bool full = false;
  size_t preferred = 0;                // entries of the longest start with a preferred size
  absl::flat_hash_set<Slot> released;  // by those that are taken already
  for (auto it = queue.begin(); it != queue.end(); ++it) {
    const Entry& entry = it->second;
    const Request& of = request(entry.node.slot);
    if (of.held() && !released.contains(entry.node.slot)) continue;
    if (of.later != kNoSlot) released.insert(of.later);
    if (!formation.oldest) formation.oldest = entry.ready_at;
    const int size = node(entry.node).size();
    if (!formation.entries.empty() && rows + size > options_.max_batch_size) {
      full = true;
      break;
    }
    formation.entries.push_back(it);
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

std::optional<Task> WindowScheduler::NextTask(WorkerId worker) {
  for (const auto& head : heads_) {
    const CellType type = head.second;
    const TypeQueue& queue = queues_.at(type);
    const Formation formation = Form(queue, now());
    if (formation.entries.empty()) continue;
    std::vector<Member> members = TakeList();
    int32_t length = 0;
    for (const TypeQueue::const_iterator entry : formation.entries) {
      const Member member = entry->second.node;
      members.push_back(member);
      length = std::max(length, request(member.slot).length);
    }
    Dequeue(type, formation.entries);
    Task task = Give(type, worker, std::move(members));
    task.length = length;
    return task;
  }
  return std::nullopt;
}

std::optional<TimePoint> WindowScheduler::FormsAt(TimePoint now) const {
  std::optional<TimePoint> wake;
  if (options_.queue_delay == Duration::zero()) return wake;
  for (const auto& [type, queue] : queues_) {
    const Formation formation = Form(queue, now);
    if (!formation.oldest) continue;
    const TimePoint due = *formation.oldest + options_.queue_delay;
    if (due > now && (!wake || due < *wake)) wake = due;
  }
  return wake;
}

}  // namespace

StatusOr<std::unique_ptr<Scheduler>> MakeWindowScheduler(const PolicyOptions& options) {
  for (int size : options.preferred_batch_sizes) {
    if (size < 1 || size > options.max_batch_size) {
      return InvalidArgument(
          "preferred_batch_sizes has {}; each must be in [1, {}], the max_batch_size", size,
          options.max_batch_size);
    }
  }
  return std::make_unique<WindowScheduler>(options);
}

StatusOr<std::unique_ptr<Scheduler>> MakeNoneScheduler(const PolicyOptions& /*options*/) {
  return MakeWindowScheduler(PolicyOptions{});
}

}  // namespace chairlift
