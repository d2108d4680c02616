#include "batching/policies/length_dp.h"

#include <algorithm>
#include <tuple>

#include "base/status.h"
#include "batching/length_plan.h"
#include "batching/policies/whole_requests.h"

namespace chairlift {
namespace {

// The most requests in a plan: making one takes some tens of microseconds.
constexpr size_t kMaxPlanned = 512;
// Plans until costs are read again: they may be measured while the model serves.
constexpr int kCostsLast = 256;
// The number of lengths whose costs are cached.
constexpr size_t kMaxLengths = 4096;

class LengthDpScheduler : public WholeRequestScheduler {
 public:
  using WholeRequestScheduler::WholeRequestScheduler;

 private:
  struct Batch {
    std::vector<Entry*> nodes;  // oldest first
    Duration cost;
  };
  struct Plan {
    bool made = false;           // for what waits now
    std::vector<Batch> batches;  // the batch with the oldest request is last
    Duration cost{0};            // of all of them
    // Nodes that became ready before this number are no longer held back.
    uint64_t released = 0;
  };

  bool pads() const override { return true; }

  void Changed(CellType type, const Queue& queue) override {
    if (queue.entries.empty()) {
      plans_.erase(type);
    } else {
      plans_[type].made = false;
    }
  }

  std::span<const double> CostsOf(CellType type, int32_t length) const {
    const auto [it, fresh] = costs_.try_emplace({type, length});
    if (fresh) {
      for (int32_t rows = 1; rows <= options_.max_batch_size; ++rows) {
        it->second.push_back(static_cast<double>(options_.costs->Cost(type, rows, length).count()));
      }
    }
    return it->second;
  }

  Plan& PlanOf(CellType type, const Queue& queue) const {
    Plan& plan = plans_[type];
    if (plan.made) return plan;
    plan.made = true;
    if (--costs_last_ <= 0 || costs_.size() > kMaxLengths) {
      costs_.clear();
      costs_last_ = kCostsLast;
    }
    std::vector<Entry*> nodes;
    for (const auto& [place, node] : queue.entries) {
      if (nodes.size() == kMaxPlanned) break;
      nodes.push_back(node);
    }
    std::sort(nodes.begin(), nodes.end(), [](const Entry* a, const Entry* b) {
      return std::tie(a->length, a->place) < std::tie(b->length, b->place);
    });
    std::vector<LengthItem> items;
    items.reserve(nodes.size());
    for (const Entry* node : nodes) items.push_back({node->length, node->size});
    const LengthPlan best = PlanLengths(items, options_.max_batch_size,
                                        [&](int32_t length) { return CostsOf(type, length); });
    plan.batches.clear();
    plan.cost = Duration(0);
    const auto older = [](const Entry* a, const Entry* b) { return a->place < b->place; };
    for (const auto& [begin, end, cost] : best.batches) {
      Batch& batch = plan.batches.emplace_back();
      batch.nodes.assign(nodes.begin() + begin, nodes.begin() + end);
      std::sort(batch.nodes.begin(), batch.nodes.end(), older);
      batch.cost = Duration(static_cast<int64_t>(cost));
      plan.cost += batch.cost;
    }
    std::sort(plan.batches.begin(), plan.batches.end(), [&](const Batch& a, const Batch& b) {
      return older(b.nodes.front(), a.nodes.front());
    });
    return plan;
  }

  // When the oldest request must no longer be held back.
  TimePoint DueAt(CellType type, const Queue& queue) const {
    const Entry& oldest = *queue.entries.begin()->second;
    TimePoint due = oldest.ready_at + options_.queue_delay;
    if (queue.size >= options_.max_batch_size) return oldest.ready_at;
    if (options_.latency_objective > Duration(0)) {
      const Duration left = options_.latency_objective / 2 - PlanOf(type, queue).cost;
      due = std::min(due, oldest.ready_at + left);
    }
    return due;
  }

  std::vector<Member> Form(CellType type, const Queue& queue) override {
    Plan& plan = PlanOf(type, queue);
    if (queue.entries.begin()->first.second >= plan.released) {
      if (options_.queue_delay > Duration(0) && DueAt(type, queue) > now()) return {};
      plan.released = queue.entries.rbegin()->first.second + 1;
    }
    const Batch next = std::move(plan.batches.back());
    plan.batches.pop_back();
    plan.cost -= next.cost;
    std::vector<Member> batch = TakeList();
    for (Entry* entry : next.nodes) {
      if (!held(*entry)) batch.push_back(Take(*entry));
    }
    // The other batches are still optimal if all of this one started.
    const auto rest = plans_.find(type);
    if (rest != plans_.end()) {
      rest->second.made = batch.size() == next.nodes.size() && !rest->second.batches.empty();
    }
    return batch;
  }

  std::optional<TimePoint> FormAt(CellType type, const Queue& queue) const override {
    if (options_.queue_delay == Duration(0)) return std::nullopt;
    return DueAt(type, queue);
  }

  // Computed on demand.
  mutable absl::flat_hash_map<CellType, Plan> plans_;  // for every queue
  mutable absl::flat_hash_map<std::pair<CellType, int32_t>, std::vector<double>> costs_;
  mutable int costs_last_ = 0;  // remaining plans
};

}  // namespace

StatusOr<std::unique_ptr<Scheduler>> MakeLengthDpScheduler(const PolicyOptions& options) {
  if (options.costs == nullptr) {
    return InvalidArgument("policy length_dp needs the costs of batches by length");
  }
  return std::make_unique<LengthDpScheduler>(options);
}

}  // namespace chairlift
