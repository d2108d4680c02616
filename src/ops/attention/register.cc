// Attention, and related operators of decoders.
#include "ops/register.h"

#include "ops/attention/attention_operators.h"

namespace chairlift {

void RegisterAttention(OperatorRegistry& registry) {
  RegisterFusedAttention(registry);
  RegisterOnnxAttention(registry);
  RegisterGrowCache(registry);
  RegisterLinearAttention(registry);
  RegisterRotaryEmbedding(registry);
  RegisterTensorScatter(registry);
}

}  // namespace chairlift
