// Registration functions of this folder's files.
#ifndef CHAIRLIFT_OPS_ATTENTION_ATTENTION_OPERATORS_H_
#define CHAIRLIFT_OPS_ATTENTION_ATTENTION_OPERATORS_H_

#include "ops/operator.h"

namespace chairlift {

void RegisterFusedAttention(OperatorRegistry& registry);  // chairlift::Attention
void RegisterOnnxAttention(OperatorRegistry& registry);   // Attention
void RegisterGrowCache(OperatorRegistry& registry);
void RegisterLinearAttention(OperatorRegistry& registry);
void RegisterRotaryEmbedding(OperatorRegistry& registry);
void RegisterTensorScatter(OperatorRegistry& registry);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_ATTENTION_ATTENTION_OPERATORS_H_
