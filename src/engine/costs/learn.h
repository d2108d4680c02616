// Costs of batches by rows and length that follow what is measured while the model serves.
#ifndef CHAIRLIFT_ENGINE_COSTS_LEARN_H_
#define CHAIRLIFT_ENGINE_COSTS_LEARN_H_

#include <optional>
#include <vector>

#include "batching/length_costs.h"
#include "engine/costs/store.h"

namespace chairlift {

// Not thread-safe: for one that schedules, under the lock under which it schedules.
class LearntCosts {
 public:
  // The samples of the next type, as LengthCosts takes them. `key`: under which they are kept;
  // absent: never.
  Status AddType(const CostSamples& samples, std::optional<CostTable::Key> key);

  const LengthCosts& costs() const { return costs_; }
  Duration Cost(CellType type, int32_t rows, int32_t length) const {
    return costs_.Cost(type, rows, length);
  }
  // A batch took `measured`.
  void Learn(CellType type, int32_t rows, int32_t length, Duration measured);
  // Has the next load find what was learnt.
  Status Keep() const;

 private:
  LengthCosts costs_;
  std::vector<std::optional<CostTable::Key>> keys_;  // by type
  bool learnt_ = false;                              // since they were added
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_COSTS_LEARN_H_
