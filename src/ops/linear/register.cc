#include "ops/linear/linear.h"
#include "ops/operator.h"
#include "ops/register.h"

namespace chairlift {

void RegisterLinear(OperatorRegistry& registry) {
  RegisterMatMul(registry);
  RegisterGemm(registry);
  RegisterConv(registry);
}

}  // namespace chairlift
