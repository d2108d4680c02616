// Asks for memory that is read soon, so that its way from a far cache overlaps with other work.
#ifndef CHAIRLIFT_BASE_PREFETCH_H_
#define CHAIRLIFT_BASE_PREFETCH_H_

#include <cstddef>

namespace chairlift {

// The memory need not be there.
inline void Prefetch(const void* from, size_t bytes) {
  constexpr size_t kLine = 64;
  const auto* line = static_cast<const char*>(from);
  for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(line + at);
  __builtin_prefetch(line + bytes - 1);
}

}  // namespace chairlift

#endif  // CHAIRLIFT_BASE_PREFETCH_H_
