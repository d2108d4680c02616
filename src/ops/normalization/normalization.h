// Registration functions of this folder's files, and common helpers of normalisations.
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

// A normalisation of at least this many elements is distributed over the team.
inline constexpr int64_t kMinNormalizedToShare = int64_t{1} << 15;

// An error if input i is computed in another type than input 0 (16-bit floats are computed in
// float32).
Status CheckSameType(const InferContext& context, int i);
// The same, and an error if its shape is known not to be one dimension of `channels`.
Status CheckPerChannel(const InferContext& context, int i, const Dim& channels);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_NORMALIZATION_NORMALIZATION_H_
