#include "ops/hands_on.h"

#include <algorithm>

#include "ops/input_values.h"

namespace chairlift {

int AlwaysHandsOn(const Attributes&, std::span<const ValueInfo>, std::span<const ValueInfo>) {
  return 0;
}

int OnlyInputHandsOn(const Attributes&, std::span<const ValueInfo> inputs,
                     std::span<const ValueInfo>) {
  return inputs.size() == 1 ? 0 : -1;
}

int SameShapeHandsOn(const Attributes&, std::span<const ValueInfo> inputs,
                     std::span<const ValueInfo> outputs) {
  return SameShape(inputs[0].shape, outputs[0].shape) ? 0 : -1;
}

int NeutralHandsOn(std::span<const ValueInfo> inputs, std::span<const ValueInfo> outputs,
                   double neutral, bool either) {
  for (int other = 1; other >= (either ? 0 : 1); --other) {
    const Tensor* value = inputs[static_cast<size_t>(other)].value;
    if (value != nullptr && ScalarValue(*value) == neutral &&
        SameShape(inputs[static_cast<size_t>(1 - other)].shape, outputs[0].shape)) {
      return 1 - other;
    }
  }
  return -1;
}

bool AllEqual(const ValueInfo& info, int64_t value) {
  const auto all = [&](const auto& elements) {
    return std::all_of(elements.begin(), elements.end(), [&](auto e) { return e == value; });
  };
  if (info.value == nullptr) return false;
  if (info.value->dtype() == DType::kInt64) return all(info.value->values<int64_t>());
  return info.value->dtype() == DType::kInt32 && all(info.value->values<int32_t>());
}

bool IsAbsent(std::span<const ValueInfo> inputs, size_t i) {
  return i >= inputs.size() || inputs[i].dtype == DType::kUndefined;
}

}  // namespace chairlift
