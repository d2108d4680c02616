// Whether workers do better together, on one batch at a time, than each on a batch of its own.
#ifndef CHAIRLIFT_BATCHING_TEAM_COSTS_H_
#define CHAIRLIFT_BATCHING_TEAM_COSTS_H_

#include <cstdint>
#include <optional>
#include <span>

#include "base/clock.h"
#include "batching/cell_graph.h"

namespace chairlift {

// Where weights are read faster by all workers, each its part of them, than by each all of them, a
// batch of few rows is run by a team much sooner, and work in all is saved. A batch of many rows is
// not: workers wait for each other.
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

// A batch that could run. By one worker each it would be run as so many equal parts.
struct ReadyBatch {
  CellType type;
  int32_t rows;
  int32_t parts = 1;
};

// Whether all of these are done sooner one after the other, each by all workers, than side by side,
// each by one. False where some cost is not known.
bool TeamIsFaster(const TeamCosts& costs, std::span<const ReadyBatch> batches, int workers);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_TEAM_COSTS_H_
