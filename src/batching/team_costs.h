// What batches cost by one worker, and by all workers together.
#ifndef CHAIRLIFT_BATCHING_TEAM_COSTS_H_
#define CHAIRLIFT_BATCHING_TEAM_COSTS_H_

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "batching/cell_graph.h"

namespace chairlift {

// For policies that decide whether workers do better together, on one batch at a time, than each on
// one of its own.
class TeamCosts {
 public:
  struct Cost {
    Duration alone{0};  // on one worker, while the others are as busy
    Duration team{0};   // on all workers together
  };
  virtual ~TeamCosts() = default;
  // What a task takes, from when it is given out to when the next one is. Absent: not known.
  virtual std::optional<Cost> Of(CellType type, int32_t rows) const = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_TEAM_COSTS_H_
