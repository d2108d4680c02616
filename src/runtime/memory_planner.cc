#include "runtime/memory_planner.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace chairlift {
namespace {

size_t RoundUp(size_t bytes) { return (bytes + kArenaAlignment - 1) & ~(kArenaAlignment - 1); }

bool Overlap(const MemoryRecord& a, const MemoryRecord& b) {
  return a.first_step <= b.last_step && b.first_step <= a.last_step;
}

// The offset for `record` among `others`, which are sorted by offset.
size_t FindGap(const MemoryRecord& record, std::span<const PlacedRecord> others) {
  const size_t bytes = RoundUp(record.bytes);
  size_t best_offset = 0;
  size_t best_gap = std::numeric_limits<size_t>::max();
  size_t end = 0;  // of the records so far that are alive together with this one
  for (const PlacedRecord& other : others) {
    if (!Overlap(record, other.record)) continue;
    if (other.offset > end) {
      const size_t gap = other.offset - end;
      if (gap >= bytes && gap < best_gap) {
        best_gap = gap;
        best_offset = end;
      }
    }
    end = std::max(end, other.offset + RoundUp(other.record.bytes));
  }
  return best_gap == std::numeric_limits<size_t>::max() ? end : best_offset;
}

}  // namespace

MemoryPlan PlanMemory(std::span<const MemoryRecord> records, std::span<const PlacedRecord> placed) {
  const auto by_offset = [](const PlacedRecord& a, const PlacedRecord& b) {
    return a.offset < b.offset;
  };
  std::vector<PlacedRecord> all(placed.begin(), placed.end());
  std::sort(all.begin(), all.end(), by_offset);

  std::vector<size_t> order(records.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return records[a].bytes > records[b].bytes; });

  MemoryPlan plan;
  plan.offsets.resize(records.size(), 0);
  for (size_t i : order) {
    if (records[i].bytes == 0) continue;
    const PlacedRecord found{records[i], FindGap(records[i], all)};
    plan.offsets[i] = found.offset;
    all.insert(std::upper_bound(all.begin(), all.end(), found, by_offset), found);
  }
  for (const PlacedRecord& p : all) {
    plan.arena_bytes = std::max(plan.arena_bytes, p.offset + RoundUp(p.record.bytes));
  }
  return plan;
}

}  // namespace chairlift
