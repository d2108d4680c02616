#include "ops/register.h"

#include "ops/operator.h"

namespace chairlift {

void RegisterLinear(OperatorRegistry& registry) { (void)registry; }

}  // namespace chairlift
