#include "batching/policies/tokens.h"

#include <algorithm>

#include "base/status.h"
#include "batching/policies/whole_requests.h"

namespace chairlift {
namespace {

// Requests that do not fit and are passed, before a batch is left as it is.
constexpr int kMaxPassed = 32;
// Tasks of a type until costs are asked again: they may be measured while the model serves.
constexpr int kSizesLast = 256;

double ToDouble(Duration duration) { return static_cast<double>(duration.count()); }

class TokensScheduler : public WholeRequestScheduler {
 public:
  using WholeRequestScheduler::WholeRequestScheduler;

 private:
  struct Sizes {
    BatchSizes sizes;
    int uses_left = 0;
  };

  bool pads() const override { return false; }

  uint64_t OrderOf(const Request& request) override {
    const auto size = static_cast<uint64_t>(request.size());
    arrived_ += size;
    return arrived_ + kTokensPatience * size;
  }

  bool FewWait() const {
    return options_.team_costs != nullptr && options_.workers > 1 &&
           waiting() <= kFewWaiting * options_.workers;
  }

  // Whether all workers had better run a batch of so many tokens.
  bool Together(CellType type, int64_t tokens) const {
    if (busy_workers() > 0 || !FewWait()) return false;
    const auto cost = options_.team_costs->Of(type, static_cast<int32_t>(tokens));
    return cost &&
           ToDouble(cost->alone) >= kTeamEfficiency * options_.workers * ToDouble(cost->team);
  }

  bool BetterToHelp(TimePoint now) const override {
    if (!FewWait() || running().size() != 1) return false;
    const Running& task = running().begin()->second;
    if (!task.by_team) return false;
    const auto cost = options_.team_costs->Of(task.type, task.rows);
    const auto next = options_.team_costs->Of(first().type, first().size());
    return cost && next && task.start + cost->team - now <= kTeamPatience * next->alone;
  }

  bool by_team() const override { return by_team_; }

  BatchSizes SizesNow(CellType type) {
    Sizes& known = sizes_[type];
    if (known.uses_left == 0) known = {TokenSizesOf(options_, type), kSizesLast};
    --known.uses_left;
    return known.sizes;
  }

  std::vector<Request*> Form(CellType type, const Queue& queue, TimePoint /*now*/) override {
    const BatchSizes sizes = SizesNow(type);
    const int64_t head = queue.requests.begin()->second->size();
    by_team_ = Together(type, std::max(head, std::min<int64_t>(queue.size, sizes.max)));
    const int64_t idle = by_team_ ? 1 : std::max(1, options_.workers - busy_workers());
    const int64_t shares = std::clamp<int64_t>(queue.size / sizes.min, 1, idle);
    const int64_t share = (queue.size + shares - 1) / shares;
    std::vector<Request*> batch;
    int64_t tokens = 0;
    int passed = 0;
    for (auto it = queue.requests.begin(); it != queue.requests.end() && passed < kMaxPassed;) {
      Request& request = *(it++)->second;
      const int64_t size = request.size();
      // Half of it at least must be within the share: shares come out as even as they can.
      const bool fits = tokens + size <= sizes.max && 2 * tokens + size <= 2 * share;
      if (request.held || (!batch.empty() && !fits)) {
        ++passed;
        continue;
      }
      Take(request);
      batch.push_back(&request);
      tokens += size;
    }
    return batch;
  }

  uint64_t arrived_ = 0;  // tokens, since the start
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
  return sizes;
}

StatusOr<std::unique_ptr<Scheduler>> MakeTokensScheduler(const PolicyOptions& options) {
  if (options.max_batch_size < 1) {
    return InvalidArgument("max_batch_size is {} tokens; it must be at least 1",
                           options.max_batch_size);
  }
  if (options.workers < 1) {
    return InvalidArgument("workers is {}; it must be at least 1", options.workers);
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckCellTypes(options));
  return std::make_unique<TokensScheduler>(options);
}

}  // namespace chairlift
