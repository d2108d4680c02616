#include "ops/register.h"

#include "ops/operator.h"

namespace chairlift {

void RegisterImage(OperatorRegistry& registry) { (void)registry; }

}  // namespace chairlift
