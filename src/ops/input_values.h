// Kernels that depend on the values of some inputs, not only on their shapes.
#ifndef CHAIRLIFT_OPS_INPUT_VALUES_H_
#define CHAIRLIFT_OPS_INPUT_VALUES_H_

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

#include "ops/operator.h"

namespace chairlift {

// Makes a kernel from values by input index; inputs that are absent or not requested are not
// present().
using ValuesFactory =
    std::function<StatusOr<std::unique_ptr<Kernel>>(const std::vector<Tensor>& values)>;

// `make` runs once, here, if all requested inputs are constants or absent. Otherwise it runs in
// every Run(), which then allocates. The factory must own what it refers to.
StatusOr<std::unique_ptr<Kernel>> CompileFromValues(const CompileContext& context,
                                                    std::initializer_list<int> inputs,
                                                    ValuesFactory make);

// The value of a floating-point tensor of one element.
std::optional<double> ScalarValue(const Tensor& t);
// Element 0 of an int32 or int64 tensor, or the fallback if the tensor is not present().
int64_t ScalarOr(const Tensor& t, int64_t fallback);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_INPUT_VALUES_H_
