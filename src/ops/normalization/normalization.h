// Registration functions of this folder's files, and what normalisations share.
#ifndef CHAIRLIFT_OPS_NORMALIZATION_NORMALIZATION_H_
#define CHAIRLIFT_OPS_NORMALIZATION_NORMALIZATION_H_

#include "absl/functional/function_ref.h"
#include "ops/operator.h"

namespace chairlift {

void RegisterSoftmax(OperatorRegistry& registry);             // Softmax, LogSoftmax
void RegisterLayerNormalization(OperatorRegistry& registry);  // and chairlift::SkipLayerNorm
void RegisterGroupNormalization(OperatorRegistry& registry);  // and InstanceNormalization
void RegisterBatchNormalization(OperatorRegistry& registry);
void RegisterMeanVarianceNormalization(OperatorRegistry& registry);
void RegisterLpNormalization(OperatorRegistry& registry);
void RegisterLrn(OperatorRegistry& registry);

// Splits [0, count) over the team in ranges where `elements` make it worth it.
void ForRanges(Team& team, int64_t count, int64_t elements,
               absl::FunctionRef<void(int64_t first, int64_t last)> body);

// An error where input i computes in another type than input 0 (16-bit floats compute as float32).
Status CheckSameType(const InferContext& context, int i);
// Likewise, and where it is known to have another shape than one dimension of `channels`.
Status CheckPerChannel(const InferContext& context, int i, const Dim& channels);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_NORMALIZATION_NORMALIZATION_H_
