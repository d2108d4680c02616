// Times programs on one core while the other workers do the same.
#ifndef CHAIRLIFT_ENGINE_COSTS_MEASURE_H_
#define CHAIRLIFT_ENGINE_COSTS_MEASURE_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "device/cpu/team.h"
#include "engine/costs/store.h"
#include "runtime/worker_memory.h"

namespace chairlift {

// Called from time to time with the elapsed share of the time allowed, from 0 to 1. May be null.
using TimingProgress = std::function<void(double done)>;

// How often something is timed: until both limits are reached.
struct TimingEffort {
  int rounds = 5;
  Duration each = std::chrono::milliseconds(3);
};

// A run to be timed. Called on several threads concurrently, each with its own worker and memory.
using TimedRun = std::function<Status(int worker, WorkerMemory& memory)>;

// Reports progress of the time from now to `until`.
std::function<void()> ProgressUntil(TimePoint until, const TimingProgress& progress);

// The lower quartile of several runs of each, in thread CPU time, while `workers` − 1 others do the
// same, as in production. So a single run that was disturbed, or whose time a virtual machine did
// not count, has no influence. Runs take turns, so that each finds the caches as the others leave
// them. Only the first round may start after `until`. A result is absent if the run fails. `tick`
// is called after each round.
std::vector<std::optional<Duration>> TimeRuns(std::span<const TimedRun> runs, int workers,
                                              const TimingEffort& effort, TimePoint until,
                                              const std::function<void()>& tick);

struct MeasureOptions {
  int min_rows = 1;  // then doubled
  int max_rows = 1;
  int workers = 1;
  Duration budget = std::chrono::seconds(1);  // for all programs together, approximately
  TimingProgress progress = nullptr;
};

// Costs by rows, up to the size from which more rows do not improve throughput. `make`: program i
// on the given rows; null if it should not be tried.
std::vector<CostSamples> MeasureCosts(size_t programs, const MeasureOptions& options,
                                      absl::FunctionRef<TimedRun(size_t i, int rows)> make);

struct LengthSampling {
  int max_rows = 1;
  int max_length = 1;
  int64_t max_places = 8192;  // rows times length of a measured batch
  int workers = 1;
  Duration budget = std::chrono::seconds(5);  // for all sizes together, approximately
  TimingProgress progress = nullptr;
};

// The key they are saved under. `description` must differ for anything that takes different time
// (DescribeForCosts).
CostTable::Key LengthCostKey(const std::string& description, const LengthSampling& sampling);

// Returns the costs saved under `key` if they are complete and from this machine and build.
// Otherwise, if `measure` is true, measures the sizes of SizesToMeasure(), smallest first within
// the budget, and saves them. `make`: a batch of that size; a null or failing one is left out.
// Empty if nothing is known.
CostSamples FindLengthCosts(const CostTable::Key& key, const LengthSampling& sampling, bool measure,
                            absl::FunctionRef<TimedRun(int rows, int length)> make);

// Runs `body` on a worker of an otherwise idle pool like the engine's, with all of its workers as
// the team. False if no such pool can be created.
bool OnIdlePool(int workers, absl::FunctionRef<void(Team& team)> body);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_COSTS_MEASURE_H_
