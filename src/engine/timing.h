// How long programs take on one core while the other workers do the same.
#ifndef CHAIRLIFT_ENGINE_TIMING_H_
#define CHAIRLIFT_ENGINE_TIMING_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "device/cpu/team.h"
#include "engine/batch.h"
#include "engine/kept_costs.h"
#include "engine/timing_options.h"

namespace chairlift {

// Something to be timed. Called on several threads at once, each with its own worker and memory.
using TimedRun = std::function<Status(int worker, WorkerMemory& memory)>;

// Tells of the time from now to `until`.
std::function<void()> ProgressUntil(TimePoint until, const TimingProgress& progress);

// The fastest of several runs of each, in time of the thread's own, while `workers` − 1 others do
// the same, as they will when it counts. They run in turns, so that each finds the caches as the
// others leave them. No round begins after `until` but the first. Absent where it fails. `tick` is
// called after each run of all.
std::vector<std::optional<Duration>> TimeRuns(std::span<const TimedRun> runs, int workers,
                                              const TimingEffort& effort, TimePoint until,
                                              const std::function<void()>& tick);

struct MeasureOptions {
  int min_rows = 1;  // doubled from there
  int max_rows = 1;
  int workers = 1;
  Duration budget = std::chrono::seconds(1);  // of all programs together, about
  TimingProgress progress = nullptr;
};

// Costs at the sizes at which they tell something: up to where more rows do not make the machine
// faster. `make`: program i on so many rows; null where it should not be tried.
std::vector<RowCosts> MeasureCosts(size_t programs, const MeasureOptions& options,
                                   absl::FunctionRef<TimedRun(size_t i, int rows)> make);

// Runs `body` on a worker of a pool like an engine's that has nothing else to do, with all of its
// workers as the team. False where there can be no such pool.
bool OnIdlePool(int workers, absl::FunctionRef<void(Team& team)> body);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_TIMING_H_
