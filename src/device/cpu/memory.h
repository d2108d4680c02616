// How much memory this process can use.
#ifndef CHAIRLIFT_DEVICE_CPU_MEMORY_H_
#define CHAIRLIFT_DEVICE_CPU_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace chairlift {

// Bytes: the least of the machine's memory, the limits of the control groups, and the room left by
// the process's own limits (address space, data).
int64_t UsableMemoryBytes();

// The limit in the text of a control group's memory.max (v2) or memory.limit_in_bytes (v1). Nothing
// if there is no limit ("max") or the text is malformed.
std::optional<int64_t> ParseMemoryLimit(std::string_view text);

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_CPU_MEMORY_H_
