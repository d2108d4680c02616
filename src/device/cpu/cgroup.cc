#include "device/cpu/cgroup.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/status.h"

namespace chairlift {

std::string ReadCgroupFile(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void ForEachCgroup(std::string_view controller,
                   absl::FunctionRef<void(const std::string& folder, bool v2)> use) {
  // Lines read "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1).
  const std::string wanted = fmt::format(",{},", controller);
  std::istringstream groups(ReadCgroupFile("/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    std::string path = line.substr(second + 1);
    if (path.empty() || path[0] != '/') continue;
    const bool v2 = controllers == ",,";
    if (!v2 && controllers.find(wanted) == std::string::npos) continue;
    const std::string mount = v2 ? "/sys/fs/cgroup" : fmt::format("/sys/fs/cgroup/{}", controller);
    while (true) {
      use(mount + path, v2);
      if (path.size() <= 1) break;
      path.resize(std::max<size_t>(1, path.rfind('/')));
    }
  }
}

}  // namespace chairlift
