#include "ops/register.h"

#include "ops/operator.h"

namespace chairlift {

void RegisterNormalization(OperatorRegistry& registry) { (void)registry; }

}  // namespace chairlift
