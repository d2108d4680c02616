#include "ops/register.h"

#include "ops/image/image.h"

namespace chairlift {

void RegisterImage(OperatorRegistry& registry) { registry.Add(ResizeOperator()); }

}  // namespace chairlift
