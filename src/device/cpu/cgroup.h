// The control groups of this process.
#ifndef CHAIRLIFT_DEVICE_CPU_CGROUP_H_
#define CHAIRLIFT_DEVICE_CPU_CGROUP_H_

#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"

namespace chairlift {

// Calls use(folder, v2) for the folder of every group that may limit `controller` ("cpu", "memory")
// for this process, from its own group up to the root. The folders need not exist: inside a
// container the path may name a folder that is not mounted, and the container's group is mounted as
// the root.
void ForEachCgroup(std::string_view controller,
                   absl::FunctionRef<void(const std::string& folder, bool v2)> use);

// Empty if there is no such file.
std::string ReadCgroupFile(const std::string& path);

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_CPU_CGROUP_H_
