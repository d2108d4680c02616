// Registration functions of this folder's files.
#ifndef CHAIRLIFT_OPS_REDUCTION_REDUCTION_H_
#define CHAIRLIFT_OPS_REDUCTION_REDUCTION_H_

#include "ops/operator.h"

namespace chairlift {

void RegisterReduce(OperatorRegistry& registry);     // reduce.cc: ReduceSum, ReduceMean, ...
void RegisterArgReduce(OperatorRegistry& registry);  // arg_reduce.cc: ArgMax, ArgMin, Hardmax
void RegisterTopK(OperatorRegistry& registry);
void RegisterCumSum(OperatorRegistry& registry);
void RegisterUnique(OperatorRegistry& registry);
void RegisterNonZero(OperatorRegistry& registry);
void RegisterCompress(OperatorRegistry& registry);
void RegisterDet(OperatorRegistry& registry);
void RegisterTfIdfVectorizer(OperatorRegistry& registry);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_REDUCTION_REDUCTION_H_
