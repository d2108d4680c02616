// The operators of tabular models.
#include "ops/register.h"

#include "ops/tabular/tabular.h"

namespace chairlift {

void RegisterTabular(OperatorRegistry& registry) {
  RegisterLookup(registry);
  RegisterCoupledProbabilities(registry);
  RegisterRegexFullMatch(registry);
  RegisterStringCasts(registry);
  RegisterStringNormalizer(registry);
  RegisterStringParts(registry);
  RegisterTokenizer(registry);
}

}  // namespace chairlift
