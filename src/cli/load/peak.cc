#include "cli/load/peak.h"

#include <cmath>

namespace chairlift {

StatusOr<double> FindPeak(const PeakSearch& search,
                          absl::FunctionRef<StatusOr<bool>(double)> holds) {
  constexpr double kStep = 1.5;
  double held = 0, failed = 0;  // 0: none yet
  double rate = search.start;
  for (int trial = 0; trial < search.max_trials; ++trial) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const bool held_here, holds(rate));
    (held_here ? held : failed) = rate;
    if (held == 0) {
      rate = failed / kStep;
    } else if (failed == 0) {
      rate = held * kStep;
    } else {
      if (failed <= held * (1 + search.precision)) break;
      rate = std::sqrt(held * failed);
    }
  }
  return held;
}

}  // namespace chairlift
