// What the operators of kernel_cases.h give, in float64.
#ifndef CHAIRLIFT_TESTS_OPS_KERNEL_REFERENCES_H_
#define CHAIRLIFT_TESTS_OPS_KERNEL_REFERENCES_H_

#include <vector>

#include "ops/operator_harness.h"

namespace chairlift::testing {

// Outputs as float64 tensors, or as the operator has them where they are no numbers: by the
// operator itself in float64 where it takes that, and else by operators that do.
StatusOr<std::vector<Tensor>> ReferenceOf(const OperatorCall& call);

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_OPS_KERNEL_REFERENCES_H_
