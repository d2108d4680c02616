// How long programs take on one core while the other workers do the same.
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

// Called now and then with how much of the time is over that timing may take, from 0 to 1. May be
// null.
using TimingProgress = std::function<void(double done)>;

// How often something is timed: until both are reached.
struct TimingEffort {
  int rounds = 5;
  Duration each = std::chrono::milliseconds(3);
};

// Something to be timed. Called on several threads at once, each with its own worker and memory.
using TimedRun = std::function<Status(int worker, WorkerMemory& memory)>;

// Reports the time from now to `until`.
std::function<void()> ProgressUntil(TimePoint until, const TimingProgress& progress);

// The lower quartile of several runs of each, in time of the thread's own, while `workers` − 1
// others do the same, as they will when it counts: a single run that was disturbed, or whose time a
// virtual machine did not count, decides nothing. They run in turns, so that each finds the caches
// as the others leave them. No round begins after `until` but the first. Absent where it fails.
// `tick` is called after each run of all.
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

// Costs by rows, up to where more rows do not make the machine
// faster. `make`: program i on so many rows; null where it should not be tried.
std::vector<CostSamples> MeasureCosts(size_t programs, const MeasureOptions& options,
                                      absl::FunctionRef<TimedRun(size_t i, int rows)> make);

struct LengthSampling {
  int max_rows = 1;
  int max_length = 1;
  int64_t max_places = 8192;  // rows times length, of a batch that is measured
  int workers = 1;
  Duration budget = std::chrono::seconds(5);  // of all sizes together, about
  TimingProgress progress = nullptr;
};

// The key under which they are kept. `description` differs for whatever takes another time
// (DescribeForCosts).
CostTable::Key LengthCostKey(const std::string& description, const LengthSampling& sampling);

// Those kept under `key`, where they are whole and of this machine and build; else, if `measure`
// says so, the sizes of SizesToMeasure(), the smallest first, as far as the budget goes, which are
// then kept. `make`: a batch of that size; null, or one that fails, is left out. Empty where
// nothing is known.
CostSamples FindLengthCosts(const CostTable::Key& key, const LengthSampling& sampling, bool measure,
                            absl::FunctionRef<TimedRun(int rows, int length)> make);

// Runs `body` on a worker of a pool like an engine's that has nothing else to do, with all of its
// workers as the team. False where there can be no such pool.
bool OnIdlePool(int workers, absl::FunctionRef<void(Team& team)> body);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_COSTS_MEASURE_H_
