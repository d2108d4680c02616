// The limit of what an operator on strings makes: a request's strings are repeated by broadcasting
// or cut into pieces, and a model may repeat that.
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
