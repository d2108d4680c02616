// Which cores this process may use, and how many at the same time.
#ifndef CHAIRLIFT_DEVICE_CPU_CORES_H_
#define CHAIRLIFT_DEVICE_CPU_CORES_H_

#include <optional>
#include <string_view>
#include <vector>

#include "chairlift/status.h"

namespace chairlift {

// Logical CPUs in this process's affinity mask, ascending.
std::vector<int> AllowedCores();

// The control group's CPU quota in cores (quota over period); nothing if there is no limit.
std::optional<double> CgroupCoreQuota();

// The quota in the text of a v2 cpu.max file ("200000 100000", "max 100000"); nothing if there is
// no limit or the text is malformed.
std::optional<double> ParseCpuMax(std::string_view text);

struct WorkerPlacement {
  int workers = 1;
  std::vector<int> pinned;  // the core of each worker; empty: workers are not pinned
};

// Chooses workers and cores. 0 workers or empty `cores`: chosen from the machine. Requested cores
// must be allowed and distinct; if both are given, there must be one core per worker. Workers are
// pinned if cores were requested, or if every allowed core gets a worker. Otherwise (under a quota,
// or with fewer workers than cores) pinned workers would collide with those of other processes.
StatusOr<WorkerPlacement> PlaceWorkers(int workers, const std::vector<int>& cores,
                                       const std::vector<int>& allowed,
                                       std::optional<double> quota);

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_CPU_CORES_H_
