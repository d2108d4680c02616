#include "engine/costs/learn.h"

#include <utility>

#include "base/status.h"

namespace chairlift {

Status LearntCosts::AddType(const CostSamples& samples, std::optional<CostTable::Key> key) {
  CHAIRLIFT_RETURN_IF_ERROR(costs_.AddType(samples));
  keys_.push_back(std::move(key));
  return absl::OkStatus();
}

void LearntCosts::Learn(CellType type, int32_t rows, int32_t length, Duration measured) {
  costs_.Learn(type, rows, length, measured);
  learnt_ = true;
}

Status LearntCosts::Keep() const {
  for (size_t type = 0; learnt_ && type < keys_.size(); ++type) {
    if (!keys_[type]) continue;
    CHAIRLIFT_RETURN_IF_ERROR(KeepCosts(*keys_[type], costs_.Samples(static_cast<CellType>(type))));
  }
  return absl::OkStatus();
}

}  // namespace chairlift
