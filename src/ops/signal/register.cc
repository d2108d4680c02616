#include "ops/register.h"

#include "ops/operator.h"

namespace chairlift {

void RegisterSignal(OperatorRegistry& registry) { (void)registry; }

}  // namespace chairlift
