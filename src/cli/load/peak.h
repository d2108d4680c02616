// Searches for the highest rate at which a condition holds.
#ifndef CHAIRLIFT_CLI_LOAD_PEAK_H_
#define CHAIRLIFT_CLI_LOAD_PEAK_H_

#include "absl/functional/function_ref.h"
#include "base/status.h"

namespace chairlift {

struct PeakSearch {
  double start = 100;       // requests a second, tried first
  double precision = 0.04;  // of the result, relative
  int max_trials = 12;
};

// A rate at which `holds` is true while at some rate up to `precision` higher it is false. Steps by
// factors of 1.5 from `start` up or down, then bisects. 0 if no tried rate holds. `holds` is
// assumed to be true below the peak and false above; the first error ends the search.
StatusOr<double> FindPeak(const PeakSearch& search,
                          absl::FunctionRef<StatusOr<bool>(double)> holds);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_LOAD_PEAK_H_
