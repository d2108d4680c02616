#include "ops/register.h"

#include "ops/operator.h"

namespace chairlift {

void RegisterQuantization(OperatorRegistry& registry) { (void)registry; }

}  // namespace chairlift
