// Scalars that determine shapes, of any element type.
#include <cmath>

#include "ops/axes.h"
#include "ops/element_type.h"
#include "ops/generation/generation.h"

namespace chairlift {

double ScalarAt(DType dtype, const void* data) {
  if (dtype == DType::kFloat16) return static_cast<float>(*static_cast<const Float16*>(data));
  if (dtype == DType::kBFloat16) return static_cast<float>(*static_cast<const BFloat16*>(data));
  const StatusOr<double> value = DispatchNumeric(dtype, [data]<typename T>() {
    return StatusOr<double>(static_cast<double>(*static_cast<const T*>(data)));
  });
  return value.ok() ? *value : 0;
}

StatusOr<std::optional<double>> KnownScalar(const InferContext& context, int i) {
  if (!context.has_input(i)) return InvalidArgument("input {} is missing", i);
  if (const Tensor* value = context.value(i); value != nullptr) {
    if (value->size() != 1)
      return InvalidArgument("input {} has {} elements, not 1", i, value->size());
    return std::optional<double>(ScalarAt(value->dtype(), value->raw()));
  }
  if (const auto elements = context.known_elements(i); elements && elements->size() == 1) {
    return std::optional<double>(static_cast<double>((*elements)[0]));
  }
  return std::optional<double>();
}

StatusOr<Dim> ScalarDim(const InferContext& context, int i) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::optional<double> value, KnownScalar(context, i));
  if (value) {
    if (!(*value >= 0 && *value <= 0x1p40) || *value != std::floor(*value)) {
      return InvalidArgument("input {} is {}, not a size", i, *value);
    }
    return Dim(static_cast<int64_t>(*value));
  }
  const auto elements = ShapeElements(context, i);
  return elements && elements->size() == 1 ? (*elements)[0] : Dim::Unknown();
}

StatusOr<DType> TypeAttribute(int64_t number, TypeSet allowed) {
  const DType dtype = ElementTypeOfOnnx(number);
  if (dtype == DType::kUndefined || !allowed.Contains(dtype)) {
    return InvalidArgument("element type number {} is not among {}", number, allowed.ToString());
  }
  return dtype;
}

}  // namespace chairlift
