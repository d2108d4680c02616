// Registration functions of this folder's files, and what normalisations share.
#ifndef CHAIRLIFT_OPS_NORMALIZATION_NORMALIZATION_H_
#define CHAIRLIFT_OPS_NORMALIZATION_NORMALIZATION_H_

#include "ops/operator.h"

namespace chairlift {

void RegisterSoftmax(OperatorRegistry& registry);             // Softmax, LogSoftmax
void RegisterLayerNormalization(OperatorRegistry& registry);  // and RMSNormalization
void RegisterEmbeddingLayerNorm(OperatorRegistry& registry);
void RegisterGroupNormalization(OperatorRegistry& registry);  // and InstanceNormalization
void RegisterBatchNormalization(OperatorRegistry& registry);
void RegisterMeanVarianceNormalization(OperatorRegistry& registry);
void RegisterLpNormalization(OperatorRegistry& registry);
void RegisterLrn(OperatorRegistry& registry);

// Elements from which a normalisation is shared among the team.
inline constexpr int64_t kMinNormalizedToShare = int64_t{1} << 15;

// An error where input i computes in another type than input 0 (16-bit floats compute as float32).
Status CheckSameType(const InferContext& context, int i);
// Likewise, and where it is known to have another shape than one dimension of `channels`.
Status CheckPerChannel(const InferContext& context, int i, const Dim& channels);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_NORMALIZATION_NORMALIZATION_H_
