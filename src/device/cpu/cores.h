// Which cores this process may use, and how many of them at once.
#ifndef CHAIRLIFT_DEVICE_CPU_CORES_H_
#define CHAIRLIFT_DEVICE_CPU_CORES_H_

#include <optional>
#include <string_view>
#include <vector>

#include "chairlift/status.h"

namespace chairlift {

// Logical CPUs in this process's affinity mask, ascending.
std::vector<int> AllowedCores();

// Cores' worth of time the control group grants (quota over period), or nothing where it sets no
// limit.
std::optional<double> CgroupCoreQuota();

// The quota in the text of a v2 cpu.max file ("200000 100000", "max 100000"); nothing where it sets
// no limit or cannot be read.
std::optional<double> ParseCpuMax(std::string_view text);

struct WorkerPlacement {
  int workers = 1;
  std::vector<int> pinned;  // the core of each worker; empty: workers float over the allowed cores
};

// Workers and cores from what was asked for (0 and empty: from the machine). Cores asked for must
// be allowed and distinct, and as many as workers where both are given. Workers are pinned where
// cores were asked for, or where every allowed core gets one: under a quota, or with fewer workers
// than cores, fixed places would collide with those of other processes.
StatusOr<WorkerPlacement> PlaceWorkers(int workers, const std::vector<int>& cores,
                                       const std::vector<int>& allowed,
                                       std::optional<double> quota);

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_CPU_CORES_H_
