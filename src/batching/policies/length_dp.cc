#include "batching/policies/length_dp.h"

#include <algorithm>
#include <tuple>

#include "base/status.h"
#include "batching/length_plan.h"
#include "batching/policies/whole_requests.h"

namespace chairlift {
namespace {

// Requests in a plan at most: making one takes some tens of microseconds.
constexpr size_t kMaxPlanned = 512;
// Plans until costs are asked again: they may be measured while the model serves.
constexpr int kCostsLast = 256;
// Lengths whose costs are kept.
constexpr size_t kMaxLengths = 4096;

class LengthDpScheduler : public WholeRequestScheduler {
 public:
  using WholeRequestScheduler::WholeRequestScheduler;

 private:
  struct Batch {
    std::vector<Request*> requests;  // the oldest first
    Duration cost;
  };
  struct Plan {
    bool made = false;           // of what waits now
    std::vector<Batch> batches;  // the one with the oldest request last
    Duration cost{0};            // of all of them
    uint64_t released = 0;       // requests that arrived before this one wait no longer
  };

  bool pads() const override { return true; }

  void Changed(CellType type, const Queue& queue) override {
    if (queue.requests.empty()) {
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
    std::vector<Request*> requests;
    for (const auto& [place, request] : queue.requests) {
      if (requests.size() == kMaxPlanned) break;
      requests.push_back(request);
    }
    std::sort(requests.begin(), requests.end(), [](const Request* a, const Request* b) {
      return std::tie(a->length, a->place) < std::tie(b->length, b->place);
    });
    std::vector<LengthItem> items;
    items.reserve(requests.size());
    for (const Request* request : requests) items.push_back({request->length, request->size()});
    const LengthPlan best = PlanLengths(items, options_.max_batch_size,
                                        [&](int32_t length) { return CostsOf(type, length); });
    plan.batches.clear();
    plan.cost = Duration(0);
    const auto older = [](const Request* a, const Request* b) { return a->place < b->place; };
    for (const auto& [begin, end, cost] : best.batches) {
      Batch& batch = plan.batches.emplace_back();
      batch.requests.assign(requests.begin() + begin, requests.begin() + end);
      std::sort(batch.requests.begin(), batch.requests.end(), older);
      batch.cost = Duration(static_cast<int64_t>(cost));
      plan.cost += batch.cost;
    }
    std::sort(plan.batches.begin(), plan.batches.end(), [&](const Batch& a, const Batch& b) {
      return older(b.requests.front(), a.requests.front());
    });
    return plan;
  }

  // When the oldest request waits no longer.
  TimePoint DueAt(CellType type, const Queue& queue) const {
    const Request& oldest = *queue.requests.begin()->second;
    TimePoint due = oldest.arrived + options_.queue_delay;
    if (queue.size >= options_.max_batch_size) return oldest.arrived;
    if (options_.latency_objective > Duration(0)) {
      const Duration left = options_.latency_objective / 2 - PlanOf(type, queue).cost;
      due = std::min(due, oldest.arrived + left);
    }
    return due;
  }

  std::vector<Request*> Form(CellType type, const Queue& queue, TimePoint now) override {
    Plan& plan = PlanOf(type, queue);
    if (queue.requests.begin()->first.second >= plan.released) {
      if (options_.queue_delay > Duration(0) && DueAt(type, queue) > now) return {};
      plan.released = queue.requests.rbegin()->first.second + 1;
    }
    const Batch next = std::move(plan.batches.back());
    plan.batches.pop_back();
    plan.cost -= next.cost;
    std::vector<Request*> batch;
    for (Request* request : next.requests) {
      if (request->held) continue;
      Take(*request);
      batch.push_back(request);
    }
    // The others' batches are as good as they were, if all of this one started.
    const auto rest = plans_.find(type);
    if (rest != plans_.end()) {
      rest->second.made = batch.size() == next.requests.size() && !rest->second.batches.empty();
    }
    return batch;
  }

  std::optional<TimePoint> FormAt(CellType type, const Queue& queue,
                                  TimePoint /*now*/) const override {
    if (options_.queue_delay == Duration(0)) return std::nullopt;
    return DueAt(type, queue);
  }

  // Made when they are asked for.
  mutable absl::flat_hash_map<CellType, Plan> plans_;  // of every queue
  mutable absl::flat_hash_map<std::pair<CellType, int32_t>, std::vector<double>> costs_;
  mutable int costs_last_ = 0;  // plans
};

}  // namespace

StatusOr<std::unique_ptr<Scheduler>> MakeLengthDpScheduler(const PolicyOptions& options) {
  if (options.max_batch_size < 1) {
    return InvalidArgument("max_batch_size is {}; it must be at least 1", options.max_batch_size);
  }
  if (options.queue_delay < Duration::zero() || options.latency_objective < Duration::zero()) {
    return InvalidArgument("queue_delay is {} us, latency_objective {} us; neither may be negative",
                           options.queue_delay.count() / 1000,
                           options.latency_objective.count() / 1000);
  }
  if (options.costs == nullptr) {
    return InvalidArgument("policy length_dp needs the costs of batches by length");
  }
  return std::make_unique<LengthDpScheduler>(options);
}

}  // namespace chairlift
