// The reductions and related operators.
#include "ops/register.h"

#include "ops/reduction/reduction.h"

namespace chairlift {

void RegisterReduction(OperatorRegistry& registry) {
  RegisterReduce(registry);
  RegisterArgReduce(registry);
  RegisterTopK(registry);
  RegisterCumSum(registry);
  RegisterUnique(registry);
  RegisterNonZero(registry);
  RegisterCompress(registry);
  RegisterDet(registry);
  RegisterTfIdfVectorizer(registry);
}

}  // namespace chairlift
