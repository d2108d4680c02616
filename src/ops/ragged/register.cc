#include "ops/register.h"

#include "ops/ragged/ragged.h"

namespace chairlift {

void RegisterRagged(OperatorRegistry& registry) {
  RegisterPagedAttention(registry);
  RegisterRaggedAttention(registry);
  RegisterRaggedCumSum(registry);
  RegisterRaggedQuantize(registry);
  RegisterRaggedReduce(registry);
  RegisterRaggedSpread(registry);
  RegisterRaggedToken(registry);
  RegisterSourceAttention(registry);
}

}  // namespace chairlift
