// The subgraphs of one cell type in order of creation, with lists of those that have ready nodes
// for a given worker.
#ifndef CHAIRLIFT_BATCHING_READY_QUEUE_H_
#define CHAIRLIFT_BATCHING_READY_QUEUE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "batching/ordered_bits.h"

namespace chairlift {

// Every operation is O(1) amortised; no allocation once the arrays have grown.
class ReadyQueue {
 public:
  static constexpr int32_t kNone = OrderedBits::kNone;
  static constexpr int32_t kUnfiled = -1;

  struct Entry {
    int32_t request;  // slot
    int32_t subgraph;
    int32_t list = kUnfiled;
  };

  // Appends a subgraph, in no list, and returns its position. Older entries may get new positions
  // in the same order: moved(entry, position) is called for each.
  template <typename Moved>
  int32_t Add(int32_t request, int32_t subgraph, Moved&& moved) {
    if (end_ == static_cast<int32_t>(entries_.size())) MakeRoom(moved);
    entries_[end_] = {request, subgraph, kUnfiled};
    ++count_;
    return end_++;
  }
  void Remove(int32_t position) {
    File(position, kUnfiled);
    entries_[position].request = kNone;
    --count_;
  }

  const Entry& at(int32_t position) const { return entries_[position]; }
  void File(int32_t position, int32_t list) {
    Entry& entry = entries_[position];
    if (entry.list == list) return;
    if (entry.list != kUnfiled) lists_[entry.list].Erase(position);
    entry.list = list;
    if (list == kUnfiled) return;
    EnsureList(list);
    lists_[list].Insert(position);
  }
  // The first entry of the list at or after a position, or kNone.
  int32_t Next(int32_t list, int32_t position) const {
    return list < static_cast<int32_t>(lists_.size()) ? lists_[list].Next(position) : kNone;
  }

 private:
  void EnsureList(int32_t list) {
    while (static_cast<int32_t>(lists_.size()) <= list) {
      lists_.emplace_back().Reset(static_cast<int32_t>(entries_.size()));
    }
  }

  // Closes gaps; grows instead if that would free less than half of the room.
  template <typename Moved>
  void MakeRoom(Moved&& moved) {
    std::vector<Entry> before = std::move(entries_);
    entries_.assign(std::max<size_t>(64, count_ * size_t{2}), {kNone, 0, kUnfiled});
    for (OrderedBits& list : lists_) list.Reset(static_cast<int32_t>(entries_.size()));
    end_ = 0;
    for (Entry& entry : before) {
      if (entry.request == kNone) continue;
      entries_[end_] = entry;
      if (entry.list != kUnfiled) lists_[entry.list].Insert(end_);
      moved(entry, end_);
      ++end_;
    }
  }

  std::vector<Entry> entries_;  // removed entries have no request
  std::vector<OrderedBits> lists_;
  int32_t end_ = 0;    // entries used so far
  int32_t count_ = 0;  // entries not removed
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_READY_QUEUE_H_
