#include "ops/register.h"

#include "ops/operator.h"

namespace chairlift {

void RegisterReduction(OperatorRegistry& registry) { (void)registry; }

}  // namespace chairlift
