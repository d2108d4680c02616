#include "ops/register.h"

#include "ops/operator.h"

namespace chairlift {

void RegisterPooling(OperatorRegistry& registry) { (void)registry; }

}  // namespace chairlift
