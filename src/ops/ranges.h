// Distributes a loop over the team.
#ifndef CHAIRLIFT_OPS_RANGES_H_
#define CHAIRLIFT_OPS_RANGES_H_

#include <algorithm>
#include <cstdint>

#include "device/cpu/team.h"

namespace chairlift {

// Runs body(first, last) for ranges that cover [0, count). There is one range if the whole loop has
// less than `share_from` in `size` (elements or bytes, whichever determines its time), else several
// per worker. Not called if count is 0.
template <typename Body>
void ForRanges(Team& team, int64_t count, int64_t size, int64_t share_from, const Body& body) {
  constexpr int64_t kRangesPerWorker = 4;
  if (count <= 0) return;
  const int64_t parts = std::min<int64_t>(count, kRangesPerWorker * team.width());
  if (team.width() == 1 || parts < 2 || size < share_from) {
    body(int64_t{0}, count);
    return;
  }
  team.For(static_cast<int>(parts),
           [&](int part, int) { body(count * part / parts, count * (part + 1) / parts); });
}

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_RANGES_H_
