#include "ops/register.h"

#include "ops/linear/linear.h"
#include "ops/operator.h"

namespace chairlift {

void RegisterLinear(OperatorRegistry& registry) {
  RegisterMatMul(registry);
  RegisterParallelMatMul(registry);
  RegisterGemm(registry);
  RegisterConv(registry);
  RegisterDeformConv(registry);
  RegisterEinsum(registry);
  RegisterReorder(registry);
}

}  // namespace chairlift
