#include "batching/team_costs.h"

#include <algorithm>

namespace chairlift {

bool TeamIsFaster(const TeamCosts& costs, std::span<const ReadyBatch> batches, int workers) {
  Duration together{0};
  Duration alone{0};
  Duration longest{0};
  for (const ReadyBatch& batch : batches) {
    const std::optional<TeamCosts::Cost> cost = costs.Of(batch.type, batch.rows);
    const int32_t rows_a_part = (batch.rows + batch.parts - 1) / batch.parts;
    const std::optional<TeamCosts::Cost> part = costs.Of(batch.type, rows_a_part);
    if (!cost || !part) return false;
    together += cost->team;
    alone += part->alone * batch.parts;
    longest = std::max(longest, part->alone);
  }
  return together < std::max(longest, alone / workers);
}

}  // namespace chairlift
