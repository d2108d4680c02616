// What element-wise operators share: registration functions of this folder's files, shape rules,
// and small compile helpers.
#ifndef CHAIRLIFT_OPS_ELEMENTWISE_ELEMENTWISE_H_
#define CHAIRLIFT_OPS_ELEMENTWISE_ELEMENTWISE_H_

#include "ops/operator.h"

namespace chairlift {

void RegisterArithmetic(OperatorRegistry& registry);   // arithmetic.cc: Add, Sub, Mul, Div
void RegisterMath(OperatorRegistry& registry);         // math.cc: Abs, Exp, Sin, ...
void RegisterActivations(OperatorRegistry& registry);  // activations.cc: Relu, Gelu, ...
void RegisterIdentity(OperatorRegistry& registry);     // identity.cc: Identity, Dropout
void RegisterCast(OperatorRegistry& registry);         // cast.cc: Cast, CastLike

// Output 0 has the type, shape and known elements of input 0.
Status InferSameAsInput(InferContext& context);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_ELEMENTWISE_ELEMENTWISE_H_
