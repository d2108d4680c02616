// The limit on the size of the strings that one operator returns. Broadcasting repeats a request's
// strings, and splitting cuts them into pieces. A chain of such operators could multiply the size.
#ifndef CHAIRLIFT_OPS_TABULAR_TEXT_LIMIT_H_
#define CHAIRLIFT_OPS_TABULAR_TEXT_LIMIT_H_

#include <cstddef>

#include "base/status.h"

namespace chairlift {

inline constexpr size_t kMostTextBytes = size_t{1} << 28;

inline Status MoreThanMostTextBytes() {
  return absl::OutOfRangeError(
      fmt::format("its result has more than {} MiB of strings", kMostTextBytes >> 20));
}

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_TABULAR_TEXT_LIMIT_H_
