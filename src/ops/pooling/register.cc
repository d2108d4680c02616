#include "ops/register.h"

#include "ops/operator.h"
#include "ops/pooling/pooling.h"

namespace chairlift {

void RegisterPooling(OperatorRegistry& registry) {
  RegisterPool(registry);
  RegisterGlobalPool(registry);
  RegisterMaxUnpool(registry);
}

}  // namespace chairlift
