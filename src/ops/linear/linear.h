// The operators of this folder, one function each; register.cc calls them all.
#ifndef CHAIRLIFT_OPS_LINEAR_LINEAR_H_
#define CHAIRLIFT_OPS_LINEAR_LINEAR_H_

namespace chairlift {

class OperatorRegistry;

void RegisterMatMul(OperatorRegistry& registry);
void RegisterParallelMatMul(OperatorRegistry& registry);
void RegisterGemm(OperatorRegistry& registry);
void RegisterConv(OperatorRegistry& registry);
void RegisterDeformConv(OperatorRegistry& registry);
void RegisterEinsum(OperatorRegistry& registry);
void RegisterReorder(OperatorRegistry& registry);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_LINEAR_H_
