// Costs of batches by rows and length, updated with measurements while the model serves.
#ifndef CHAIRLIFT_ENGINE_COSTS_LEARN_H_
#define CHAIRLIFT_ENGINE_COSTS_LEARN_H_

#include <optional>
#include <vector>

#include "batching/length_costs.h"
#include "engine/costs/store.h"

namespace chairlift {

// Not thread-safe: for use by one scheduler, under the lock that it schedules under.
class LearntCosts {
 public:
  // Adds the samples of the next type, as LengthCosts does. `key`: the key they are saved under;
  // absent: not saved.
  Status AddType(const CostSamples& samples, std::optional<CostTable::Key> key);

  const LengthCosts& costs() const { return costs_; }
  Duration Cost(CellType type, int32_t rows, int32_t length) const {
    return costs_.Cost(type, rows, length);
  }
  // A batch took `measured`.
  void Learn(CellType type, int32_t rows, int32_t length, Duration measured);
  // Saves what was learnt for the next load.
  Status Keep() const;

 private:
  LengthCosts costs_;
  std::vector<std::optional<CostTable::Key>> keys_;  // by type
  bool learnt_ = false;                              // since the types were added
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_COSTS_LEARN_H_
