#include "cli/heap_trim.h"

#include <algorithm>

namespace chairlift {

bool HeapTrim::Due(int64_t resident, absl::FunctionRef<int64_t()> free) {
  least_resident_ = std::min(least_resident_, resident);
  if (resident < least_resident_ + kWorthIt) return false;
  const int64_t free_now = free();
  last_.free = std::min(last_.free, free_now);
  return free_now >= last_.free + kWorthIt || resident >= last_.resident + kWorthIt;
}

void HeapTrim::Trimmed(const Memory& now) {
  least_resident_ = std::min(least_resident_, now.resident);
  last_ = now;
}

}  // namespace chairlift
