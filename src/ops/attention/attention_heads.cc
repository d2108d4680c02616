#include "ops/attention/attention_heads.h"

#include <algorithm>

#include "ops/attention/attention_steps.h"

namespace chairlift {

size_t AttentionHeads::PackedBytes() const {
  return (PackedHeadBytes(most_.keys, most_.head_size, most_.value_size) + 63) / 64 * 64;
}

size_t AttentionHeads::SlotBytes() const {
  return PackedBytes() + (AttendScratchBytes(most_.head_size) + 63) / 64 * 64;
}

void AttendUnlessStopped(const AttentionHead& head, int64_t first, int64_t last, const void* packed,
                         void* scratch, const StopPoll& poll) {
  constexpr int64_t kMultiplyAdds = int64_t{1} << 29, kQueries = 256;
  const int64_t each = std::max<int64_t>(1, head.keys * (head.head_size + head.value_size));
  const int64_t queries = std::max<int64_t>(1, kMultiplyAdds / each / kQueries) * kQueries;
  for (; first < last && !poll.Stopped(); first += queries) {
    Attend(head, first, std::min(last, first + queries), packed, scratch);
  }
}

Status AttentionHeads::Run(Team& team, void* scratch,
                           absl::FunctionRef<AttentionHead(int64_t unit)> head) const {
  if (units_ == 0 || most_.queries == 0) return absl::OkStatus();
  const StopPoll poll;
  const int width = std::min(team.width(), width_);
  const double work = static_cast<double>(units_) * static_cast<double>(most_.queries) *
                      static_cast<double>(most_.keys) *
                      static_cast<double>(most_.head_size + most_.value_size);
  // Heads are distributed first. If they are too few to distribute evenly, so are the queries of
  // each.
  constexpr double kWorthSharing = 2e5;
  const bool uneven = units_ % width != 0 && units_ <= 4 * width;
  const bool cut = work >= kWorthSharing && uneven && most_.queries >= 32 * width;
  const int64_t pieces = cut ? width : 1;
  const int64_t jobs = units_ * pieces;
  const int64_t parts =
      work < kWorthSharing ? 1 : std::min<int64_t>(jobs, static_cast<int64_t>(width) * 4);
  team.For(static_cast<int>(parts), [&](int part, int worker) {
    const size_t slot = team.width() == 1 ? 0 : static_cast<size_t>(worker);
    std::byte* packed = static_cast<std::byte*>(scratch) + slot * SlotBytes();
    for (int64_t job = jobs * part / parts; job < jobs * (part + 1) / parts; ++job) {
      const AttentionHead unit = head(job / pieces);
      const int64_t piece = job % pieces;
      const int64_t first = unit.queries * piece / pieces;
      const int64_t last = unit.queries * (piece + 1) / pieces;
      if (unit.keys == 0) {  // empty sums
        for (int64_t query = first; query < last; ++query) {
          std::fill_n(unit.out + query * unit.out_row, unit.value_size, 0.0f);
        }
        continue;
      }
      if (unit.steps != nullptr) {
        AttendInSteps(unit, first, last, reinterpret_cast<float*>(packed));
        continue;
      }
      PackHead(unit, packed);
      AttendUnlessStopped(unit, first, last, packed, packed + PackedBytes(), poll);
    }
  });
  return poll.Result();
}

}  // namespace chairlift
