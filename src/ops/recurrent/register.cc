#include "ops/register.h"

#include "ops/operator.h"

namespace chairlift {

void RegisterRecurrent(OperatorRegistry& registry) { (void)registry; }

}  // namespace chairlift
