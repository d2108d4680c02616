// The control groups that this process is in.
#ifndef CHAIRLIFT_DEVICE_CPU_CGROUP_H_
#define CHAIRLIFT_DEVICE_CPU_CGROUP_H_

#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"

namespace chairlift {

// Calls use(folder, v2) for the folder of every group that limits `controller` ("cpu", "memory")
// for this process, from its own up to the root: each may. Folders need not exist: inside a
// container the path may name one that is not mounted, and the root is the one.
void ForEachCgroup(std::string_view controller,
                   absl::FunctionRef<void(const std::string& folder, bool v2)> use);

// Empty where there is none.
std::string ReadCgroupFile(const std::string& path);

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_CPU_CGROUP_H_
