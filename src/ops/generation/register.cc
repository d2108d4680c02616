// The operators that make tensors from shapes, scalars and attributes.
#include "ops/register.h"

#include "ops/generation/generation.h"

namespace chairlift {

void RegisterGeneration(OperatorRegistry& registry) {
  RegisterConstant(registry);
  RegisterConstantOfShape(registry);
  RegisterRange(registry);
  RegisterEyeLike(registry);
  RegisterOneHot(registry);
  RegisterTrilu(registry);
  RegisterWindows(registry);
  RegisterMelWeightMatrix(registry);
  RegisterShape(registry);
  RegisterRandom(registry);
}

}  // namespace chairlift
