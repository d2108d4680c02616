// The highest rate at which something still holds, by trying.
#ifndef CHAIRLIFT_CLI_LOAD_PEAK_H_
#define CHAIRLIFT_CLI_LOAD_PEAK_H_

#include "absl/functional/function_ref.h"
#include "base/status.h"

namespace chairlift {

struct PeakSearch {
  double start = 100;       // requests a second, tried first
  double precision = 0.04;  // of the answer, as a share of it
  int max_trials = 12;
};

// A rate at which `holds` is true while at some rate up to `precision` higher it is not: steps of
// half as much again from `start` on, up or down, then halves. 0 where no rate that was tried
// holds. `holds` is taken to be true below the peak and false above; the first error ends the
// search.
StatusOr<double> FindPeak(const PeakSearch& search,
                          absl::FunctionRef<StatusOr<bool>(double)> holds);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_LOAD_PEAK_H_
