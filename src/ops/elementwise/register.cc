// The element-wise operators.
#include "ops/register.h"

#include "ops/elementwise/elementwise.h"

namespace chairlift {

void RegisterElementwise(OperatorRegistry& registry) {
  RegisterArithmetic(registry);
  RegisterMath(registry);
  RegisterActivations(registry);
  RegisterIdentity(registry);
  RegisterCast(registry);
  RegisterMod(registry);
  RegisterPow(registry);
  RegisterBitwise(registry);
  RegisterLogical(registry);
  RegisterComparison(registry);
  RegisterVariadic(registry);
  RegisterWhere(registry);
  RegisterClip(registry);
  RegisterPRelu(registry);
  RegisterFusedElementwise(registry);
}

}  // namespace chairlift
