#include "engine/execution/request_costs.h"

#include <mutex>

namespace chairlift {

SizeCosts::Prediction RequestCosts::Predict(const std::string& at, int64_t bytes) const {
  const std::lock_guard<AdaptiveMutex> lock(mutex_);
  const auto found = at_.find(at);
  return found == at_.end() ? SizeCosts::Prediction{} : found->second.Predict(bytes);
}

void RequestCosts::Learn(const std::string& at, int64_t bytes, const MeasuredCost& cost) {
  if (cost.time <= Duration(0)) return;
  const std::lock_guard<AdaptiveMutex> lock(mutex_);
  SizeCosts& costs = at_[at];
  if (!cost.complete) {
    costs.LearnLeast(bytes, cost.time);
  } else if (cost.helped) {
    costs.LearnMost(bytes, cost.time);
  } else {
    costs.Learn(bytes, cost.time, cost.batched);
  }
}

}  // namespace chairlift
