#include "batching/policies/packed.h"

#include <algorithm>

#include "batching/policies/whole_requests.h"

namespace chairlift {
namespace {

// Requests that do not fit and are passed over before a batch is closed.
constexpr int kMaxPassed = 32;
// Tasks of a type until costs are read again: they may be measured while the model serves.
constexpr int kSizesLast = 256;

double ToDouble(Duration duration) { return static_cast<double>(duration.count()); }

class PackedScheduler : public WholeRequestScheduler {
 public:
  using WholeRequestScheduler::WholeRequestScheduler;
  bool takes_turns() const override { return true; }

 private:
  struct Sizes {
    BatchSizes sizes;
    int uses_left = 0;
  };

  bool pads() const override { return false; }

  uint64_t OrderOf(const Entry& entry) override {
    const auto size = static_cast<uint64_t>(entry.size);
    arrived_ += size;
    return arrived_ + kTokensPatience * size;
  }

  bool FewWait() const {
    return options_.team_costs != nullptr && options_.workers > 1 &&
           waiting() <= kFewWaiting * options_.workers;
  }

  // Whether all workers should run a batch of `tokens` tokens together.
  bool Together(CellType type, int64_t tokens) const {
    if (!busy().empty() || !FewWait()) return false;
    const auto cost = options_.team_costs->Of(type, static_cast<int32_t>(tokens));
    return cost &&
           ToDouble(cost->alone) >= kTeamEfficiency * options_.workers * ToDouble(cost->team);
  }

  bool BetterToHelp() const override {
    if (!FewWait() || busy().size() != 1) return false;
    const Work& task = busy().begin()->second;
    if (!task.by_team) return false;
    const auto cost = options_.team_costs->Of(task.type, task.rows);
    const auto next = options_.team_costs->Of(first().type, first().size);
    return cost && next && task.start + cost->team - now() <= kTeamPatience * next->alone;
  }

  bool by_team() const override { return by_team_; }

  BatchSizes SizesNow(CellType type) {
    Sizes& known = sizes_[type];
    if (known.uses_left == 0) known = {TokenSizesOf(options_, type), kSizesLast};
    --known.uses_left;
    return known.sizes;
  }

  std::vector<Member> Form(CellType type, const Queue& queue) override {
    const BatchSizes sizes = SizesNow(type);
    const int64_t head = queue.entries.begin()->second->size;
    by_team_ = Together(type, std::max(head, std::min<int64_t>(queue.size, sizes.max)));
    const int64_t idle =
        by_team_ ? 1 : std::max(1, options_.workers - static_cast<int>(busy().size()));
    const int64_t shares = std::clamp<int64_t>(queue.size / sizes.min, 1, idle);
    const int64_t share = (queue.size + shares - 1) / shares;
    std::vector<Member> batch = TakeList();
    int64_t tokens = 0;
    int passed = 0;
    for (auto it = queue.entries.begin(); it != queue.entries.end() && passed < kMaxPassed;) {
      Entry& entry = *(it++)->second;
      const int64_t size = entry.size;
      // At least half of the request must be within the share, so that shares are as even as
      // possible.
      const bool fits = tokens + size <= sizes.max && 2 * tokens + size <= 2 * share;
      if (held(entry) || (!batch.empty() && !fits)) {
        ++passed;
        continue;
      }
      batch.push_back(Take(entry));
      tokens += size;
      const Entry* const next = follower();
      if (next != nullptr && (it == queue.entries.end() || next->place < it->first)) it = next->at;
    }
    return batch;
  }

  uint64_t arrived_ = 0;  // tokens since the start
  bool by_team_ = false;  // the last task formed is for all workers
  absl::flat_hash_map<CellType, Sizes> sizes_;
};

}  // namespace

BatchSizes TokenSizesOf(const PolicyOptions& options, CellType type) {
  BatchSizes sizes = SizesOf(options, type);
  const bool given =
      type < options.cell_types.size() && options.cell_types[type].max_batch_size > 0;
  if (options.costs != nullptr && !given) {
    sizes.max = std::min(options.max_batch_size, std::max(kLeastBudget, sizes.max));
  }
  sizes.most = sizes.max;
  return sizes;
}

StatusOr<std::unique_ptr<Scheduler>> MakePackedScheduler(const PolicyOptions& options) {
  return std::make_unique<PackedScheduler>(options);
}

}  // namespace chairlift
