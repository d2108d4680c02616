#include "ops/register.h"

#include "ops/operator.h"

namespace chairlift {

void RegisterMovement(OperatorRegistry& registry) { (void)registry; }

}  // namespace chairlift
