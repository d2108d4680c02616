#include "batching/policies/window.h"

#include <algorithm>
#include <compare>
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
  bool takes_turns() const override { return true; }

 private:
  // Position of a ready node in the queue: its turn, then the order of becoming ready.
  struct Place {
    uint64_t turn = 0;
    uint64_t sequence = 0;  // from 1; 0: in no queue
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  // Requests take turns, one node each. A request's next node gets the turn after its last node's,
  // or after that of the latest started node if that is later. So a new request waits for one node
  // of each other request, however many they have.
  struct Turns {
    uint64_t last = 0;
    int queued = 0;  // nodes in the queue
  };
  struct Entry {
    Member node;
    TimePoint ready_at;
  };
  using TypeQueue = std::map<Place, Entry>;
  // How many entries of a queue form a task now. Skips entries whose client has an earlier request
  // that has not started.
  struct Formation {
    std::vector<TypeQueue::const_iterator> entries;
    std::optional<TimePoint> oldest;  // when the oldest node that may start became ready
  };

  void Arrived(Slot slot, const CellGraph& graph) override;
  std::optional<Task> NextTask(WorkerId worker) override;
  void Ready(std::span<const Member> nodes) override;
  void Gone(Slot slot) override;
  std::optional<TimePoint> FormsAt(TimePoint now) const override;

  Place& QueuedAs(Member member);
  Turns& TurnsOf(Slot slot);
  // Removes entries from the type's queue; the queue is removed when empty.
  void Dequeue(CellType type, std::span<const TypeQueue::const_iterator> entries);
  Formation Form(const TypeQueue& queue, TimePoint now) const;

  const PolicyOptions options_;
  uint64_t next_sequence_ = 1;
  uint64_t turn_ = 0;  // of the latest started node
  struct OfSlot {
    uint64_t turn = 0;  // CellGraph::turn
    Turns own;          // used if turn is 0
  };
  std::vector<OfSlot> turns_;  // by slot
  // By CellGraph::turn; only while a node is queued.
  absl::flat_hash_map<uint64_t, Turns> shared_;
  std::vector<std::vector<Place>> queued_as_;        // by slot, node
  absl::flat_hash_map<CellType, TypeQueue> queues_;  // only non-empty queues
  std::set<std::pair<Place, CellType>> heads_;       // the first entry of every queue
};

void WindowScheduler::Arrived(Slot slot, const CellGraph& graph) {
  const auto at = static_cast<size_t>(slot);
  if (at >= turns_.size()) turns_.resize(at + 1);
  turns_[at] = {.turn = graph.turn(), .own = {}};
}

WindowScheduler::Turns& WindowScheduler::TurnsOf(Slot slot) {
  OfSlot& of = turns_[static_cast<size_t>(slot)];
  return of.turn == 0 ? of.own : shared_[of.turn];
}

WindowScheduler::Place& WindowScheduler::QueuedAs(Member member) {
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
    Turns& turns = TurnsOf(member.slot);
    turns.last = std::max(turns.last, turn_) + 1;
    ++turns.queued;
    const Place place{turns.last, next_sequence_++};
    QueuedAs(member) = place;
    TypeQueue& queue = queues_[type];
    const bool first = queue.empty() || place < queue.begin()->first;
    if (first && !queue.empty()) heads_.erase({queue.begin()->first, type});
    if (first) heads_.emplace(place, type);
    queue.emplace_hint(queue.end(), place, Entry{member, now()});
  }
}

void WindowScheduler::Dequeue(CellType type, std::span<const TypeQueue::const_iterator> entries) {
  const auto found = queues_.find(type);
  TypeQueue& queue = found->second;
  const Place head = queue.begin()->first;
  for (const TypeQueue::const_iterator entry : entries) {
    const Slot slot = entry->second.node.slot;
    QueuedAs(entry->second.node) = {};
    queue.erase(entry);
    const uint64_t turn = turns_[static_cast<size_t>(slot)].turn;
    if (--TurnsOf(slot).queued == 0 && turn != 0) shared_.erase(turn);
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
  std::vector<Place>& queued = queued_as_[slot];
  for (size_t i = 0; request(slot).unfinished > 0 && i < queued.size(); ++i) {
    if (queued[i].sequence == 0) continue;
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
  size_t preferred = 0;                // entries of the longest prefix with a preferred size
  absl::flat_hash_set<Slot> released;  // released by entries that are already taken
  for (auto it = queue.begin(); it != queue.end(); ++it) {
    const Entry& entry = it->second;
    const Request& of = request(entry.node.slot);
    if (of.held() && !released.contains(entry.node.slot)) continue;
    if (of.later != kNoSlot) released.insert(of.later);
    formation.oldest = std::min(formation.oldest.value_or(entry.ready_at), entry.ready_at);
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
      turn_ = std::max(turn_, entry->first.turn);
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
