#include "ops/register.h"

#include "ops/operator.h"

namespace chairlift {

void RegisterGeneration(OperatorRegistry& registry) { (void)registry; }

}  // namespace chairlift
