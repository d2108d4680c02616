#include "device/cpu/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "device/cpu/cgroup.h"

namespace chairlift {

std::optional<int64_t> ParseMemoryLimit(std::string_view text) {
  int64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  const bool whole = end == text.data() + text.size() || *end == '\n';
  if (error != std::errc() || !whole || bytes <= 0) return std::nullopt;
  return bytes;
}

int64_t UsableMemoryBytes() {
  int64_t usable = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    usable = std::min(usable, static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, INT64_MAX)));
  }
  // Version 1 reports a number near the largest integer if there is no limit.
  ForEachCgroup("memory", [&](const std::string& folder, bool v2) {
    const std::optional<int64_t> limit =
        ParseMemoryLimit(ReadCgroupFile(folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes")));
    if (limit) usable = std::min(usable, *limit);
  });
  return usable;
}

}  // namespace chairlift
