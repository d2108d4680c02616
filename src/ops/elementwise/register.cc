#include "ops/register.h"

#include "ops/operator.h"

namespace chairlift {

void RegisterElementwise(OperatorRegistry& registry) { (void)registry; }

}  // namespace chairlift
