// Registration functions of this folder's files, and reading scalars of any numeric type.
#ifndef CHAIRLIFT_OPS_GENERATION_GENERATION_H_
#define CHAIRLIFT_OPS_GENERATION_GENERATION_H_

#include <optional>

#include "ops/operator.h"

namespace chairlift {

void RegisterConstant(OperatorRegistry& registry);
void RegisterConstantOfShape(OperatorRegistry& registry);
void RegisterRange(OperatorRegistry& registry);
void RegisterEyeLike(OperatorRegistry& registry);
void RegisterOneHot(OperatorRegistry& registry);
void RegisterTrilu(OperatorRegistry& registry);
void RegisterWindows(OperatorRegistry& registry);  // windows.cc: HannWindow, ...
void RegisterMelWeightMatrix(OperatorRegistry& registry);
void RegisterShape(OperatorRegistry& registry);  // shape.cc: Shape, Size
void RegisterRandom(OperatorRegistry& registry);

// The element that `data` points to, as a double.
double ScalarAt(DType dtype, const void* data);
// The known value of input i, which must have a single element; nullopt if unknown.
StatusOr<std::optional<double>> KnownScalar(const InferContext& context, int i);
// A dimension that is the value of scalar input i: a number, a symbol, or unknown. An error if it
// is known and negative, not whole, or too large.
StatusOr<Dim> ScalarDim(const InferContext& context, int i);

// The element type for a TensorProto number, which must be among `allowed`.
StatusOr<DType> TypeAttribute(int64_t number, TypeSet allowed);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_GENERATION_GENERATION_H_
