// The normalisations.
#include "ops/register.h"

#include "ops/normalization/normalization.h"

namespace chairlift {

void RegisterNormalization(OperatorRegistry& registry) {
  RegisterSoftmax(registry);
  RegisterLayerNormalization(registry);
  RegisterEmbeddingLayerNorm(registry);
  RegisterGroupNormalization(registry);
  RegisterBatchNormalization(registry);
  RegisterMeanVarianceNormalization(registry);
  RegisterLpNormalization(registry);
  RegisterLrn(registry);
}

}  // namespace chairlift
