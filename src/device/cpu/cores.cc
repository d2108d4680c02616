#include "device/cpu/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "base/status.h"
#include "device/cpu/team.h"

namespace chairlift {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The tighter of two limits, either of which may be absent.
std::optional<double> Tighter(std::optional<double> a, std::optional<double> b) {
  if (!a) return b;
  if (!b) return a;
  return std::min(*a, *b);
}

// Version 1: quota and period lie in two files; the quota is −1 where there is no limit.
std::optional<double> QuotaV1(const std::string& folder) {
  std::istringstream quota_text(ReadFile(folder + "/cpu.cfs_quota_us"));
  std::istringstream period_text(ReadFile(folder + "/cpu.cfs_period_us"));
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
  // Lines read "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1). Every group up to the root may limit;
  // inside a container the path may name a folder that is not mounted, and the root is the one.
  std::optional<double> limit;
  std::istringstream groups(ReadFile("/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    std::string path = line.substr(second + 1);
    if (path.empty() || path[0] != '/') continue;
    const bool v2 = controllers == ",,";
    if (!v2 && controllers.find(",cpu,") == std::string::npos) continue;
    while (true) {
      const std::string folder =
          fmt::format("{}{}", v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu", path);
      limit = Tighter(limit, v2 ? ParseCpuMax(ReadFile(folder + "/cpu.max")) : QuotaV1(folder));
      if (path.size() <= 1) break;
      path.resize(std::max<size_t>(1, path.rfind('/')));
    }
  }
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
      return InvalidArgument("{} cores; at most {} workers are possible", cores.size(),
                             Team::kMaxWorkers);
    }
    std::set<int> seen;
    for (int core : cores) {
      if (std::find(allowed.begin(), allowed.end(), core) == allowed.end()) {
        return InvalidArgument("core {} is not among the {} cores this process may run on", core,
                               allowed.size());
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
