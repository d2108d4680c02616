// Runs generic code for any element type.
#ifndef CHAIRLIFT_TENSOR_DISPATCH_ALL_H_
#define CHAIRLIFT_TENSOR_DISPATCH_ALL_H_

#include <utility>

#include "tensor/dtype.h"

namespace chairlift {

// DispatchTypes() over every element type.
template <typename F>
auto DispatchAll(DType dtype, F&& f) {
  return DispatchTypes<float, double, Float16, BFloat16, int8_t, int16_t, int32_t, int64_t, uint8_t,
                       uint16_t, uint32_t, uint64_t, bool>(dtype, std::forward<F>(f));
}

}  // namespace chairlift

#endif  // CHAIRLIFT_TENSOR_DISPATCH_ALL_H_
