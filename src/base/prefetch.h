// Prefetches memory that is read soon, so that fetching it from a distant cache overlaps with other
// work.
#ifndef CHAIRLIFT_BASE_PREFETCH_H_
#define CHAIRLIFT_BASE_PREFETCH_H_

#include <cstddef>

namespace chairlift {

// The address need not be mapped.
inline void Prefetch(const void* from, size_t bytes) {
  constexpr size_t kLine = 64;
  const auto* line = static_cast<const char*>(from);
  for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(line + at);
  __builtin_prefetch(line + bytes - 1);
}

}  // namespace chairlift

#endif  // CHAIRLIFT_BASE_PREFETCH_H_
