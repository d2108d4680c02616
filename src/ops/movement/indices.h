// Reading index tensors of int32 or int64, and checking what they index.
#ifndef CHAIRLIFT_OPS_MOVEMENT_INDICES_H_
#define CHAIRLIFT_OPS_MOVEMENT_INDICES_H_

#include <cstdint>

#include "base/status.h"
#include "chairlift/tensor.h"

namespace chairlift {

// Element `i` of an int32 or int64 tensor.
inline int64_t ReadIndex(DType dtype, const void* data, int64_t i) {
  return dtype == DType::kInt64 ? static_cast<const int64_t*>(data)[i]
                                : static_cast<const int32_t*>(data)[i];
}

// Whether every one of `n` indices is in [−bound, bound); an error has the first that is not.
template <typename Index>
Status CheckIndices(const Index* indices, int64_t n, int64_t bound) {
  bool good = true;
  for (int64_t i = 0; i < n; ++i) good &= indices[i] >= -bound && indices[i] < bound;
  if (good) return absl::OkStatus();
  for (int64_t i = 0; i < n; ++i) {
    if (indices[i] < -bound || indices[i] >= bound) {
      return InvalidArgument("index {} at position {} is outside [{}, {})", indices[i], i, -bound,
                             bound);
    }
  }
  return absl::OkStatus();
}

inline int64_t WrapIndex(int64_t index, int64_t bound) { return index < 0 ? index + bound : index; }

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_MOVEMENT_INDICES_H_
