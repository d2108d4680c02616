#include "device/cpu/cores.h"

#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <string>

#include "base/status.h"
#include "device/cpu/cgroup.h"
#include "device/cpu/team.h"

namespace chairlift {
namespace {

// The stricter of two limits; either may be absent.
std::optional<double> Tighter(std::optional<double> a, std::optional<double> b) {
  if (!a) return b;
  if (!b) return a;
  return std::min(*a, *b);
}

// Version 1: quota and period are two files; a quota of −1 means no limit.
std::optional<double> QuotaV1(const std::string& folder) {
  std::istringstream quota_text(ReadCgroupFile(folder + "/cpu.cfs_quota_us"));
  std::istringstream period_text(ReadCgroupFile(folder + "/cpu.cfs_period_us"));
  double quota = 0;
  double period = 0;
  if (!(quota_text >> quota) || !(period_text >> period) || quota <= 0 || period <= 0) {
    return std::nullopt;
  }
  return quota / period;
}

}  // namespace

std::vector<int> AllowedCores() {
  // Larger than cpu_set_t's 1024, for machines with more.
  constexpr int kMaxCores = 8192;
  cpu_set_t* set = CPU_ALLOC(kMaxCores);
  const size_t bytes = CPU_ALLOC_SIZE(kMaxCores);
  CPU_ZERO_S(bytes, set);
  std::vector<int> cores;
  if (sched_getaffinity(0, bytes, set) == 0) {
    for (int core = 0; core < kMaxCores; ++core) {
      if (CPU_ISSET_S(core, bytes, set)) cores.push_back(core);
    }
  }
  CPU_FREE(set);
  if (cores.empty()) cores.push_back(0);
  return cores;
}

std::optional<double> ParseCpuMax(std::string_view text) {
  std::istringstream in{std::string(text)};
  double quota = 0;
  double period = 0;
  if (!(in >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> CgroupCoreQuota() {
  std::optional<double> limit;
  ForEachCgroup("cpu", [&](const std::string& folder, bool v2) {
    limit = Tighter(limit, v2 ? ParseCpuMax(ReadCgroupFile(folder + "/cpu.max")) : QuotaV1(folder));
  });
  return limit;
}

StatusOr<WorkerPlacement> PlaceWorkers(int workers, const std::vector<int>& cores,
                                       const std::vector<int>& allowed,
                                       std::optional<double> quota) {
  if (workers < 0 || workers > Team::kMaxWorkers) {
    return InvalidArgument("workers is {}; it must be 0 (one for each core) to {}", workers,
                           Team::kMaxWorkers);
  }
  WorkerPlacement placement;
  if (!cores.empty()) {
    if (workers != 0 && workers != static_cast<int>(cores.size())) {
      return InvalidArgument("{} workers for {} cores; give one core to each worker, or no cores",
                             workers, cores.size());
    }
    if (cores.size() > static_cast<size_t>(Team::kMaxWorkers)) {
      return InvalidArgument("{} cores; at most {} workers are supported", cores.size(),
                             Team::kMaxWorkers);
    }
    std::set<int> seen;
    for (int core : cores) {
      if (std::find(allowed.begin(), allowed.end(), core) == allowed.end()) {
        return InvalidArgument("core {} is not among those this process may run on: {}", core,
                               fmt::join(allowed, ", "));
      }
      if (!seen.insert(core).second) return InvalidArgument("core {} is listed twice", core);
    }
    placement.workers = static_cast<int>(cores.size());
    placement.pinned = cores;
    return placement;
  }
  int available = static_cast<int>(allowed.size());
  if (quota) available = std::min(available, std::max(1, static_cast<int>(std::ceil(*quota))));
  placement.workers = std::min(workers > 0 ? workers : available, Team::kMaxWorkers);
  if (placement.workers == static_cast<int>(allowed.size())) placement.pinned = allowed;
  return placement;
}

}  // namespace chairlift
