#include "ops/register.h"

#include "ops/operator.h"

namespace chairlift {

void RegisterControl(OperatorRegistry& registry) { (void)registry; }

}  // namespace chairlift
