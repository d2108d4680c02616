// Costs of batches on one worker, and on all workers together.
#ifndef CHAIRLIFT_BATCHING_TEAM_COSTS_H_
#define CHAIRLIFT_BATCHING_TEAM_COSTS_H_

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "batching/cell_graph.h"

namespace chairlift {

// For policies that decide whether the workers should run one batch together, or one each.
class TeamCosts {
 public:
  struct Cost {
    Duration alone{0};  // on one worker, while the others are equally busy
    Duration team{0};   // on all workers together
  };
  virtual ~TeamCosts() = default;
  // The time of a task, from its start to the start of the next one. Absent: unknown.
  virtual std::optional<Cost> Of(CellType type, int32_t rows) const = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_TEAM_COSTS_H_
