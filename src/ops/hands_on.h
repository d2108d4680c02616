// What operators share that may hand on an input as it is, for OperatorDef::hands_on.
//
// A node that hands on its input goes, and with it all that it would refuse. So these answer -1
// where a request may bring what the node refuses. The outputs that they are given are what
// OperatorDef::infer says of the inputs.
#ifndef CHAIRLIFT_OPS_HANDS_ON_H_
#define CHAIRLIFT_OPS_HANDS_ON_H_

#include <cstdint>
#include <span>

#include "ops/operator.h"

namespace chairlift {

// Input 0 always; where it is the only input; where output 0 has its shape. The last is for
// operators whose output has a known shape only if their inputs have fixed it: a shape that a
// request brings must stay checked.
int AlwaysHandsOn(const Attributes& attributes, std::span<const ValueInfo> inputs,
                  std::span<const ValueInfo> outputs);
int OnlyInputHandsOn(const Attributes& attributes, std::span<const ValueInfo> inputs,
                     std::span<const ValueInfo> outputs);
int SameShapeHandsOn(const Attributes& attributes, std::span<const ValueInfo> inputs,
                     std::span<const ValueInfo> outputs);

// Of x op y with one neutral element: x where y is that, and with `either` y where x is.
int NeutralHandsOn(std::span<const ValueInfo> inputs, std::span<const ValueInfo> outputs,
                   double neutral, bool either);

// Whether it is a constant of integers that all have that value.
bool AllEqual(const ValueInfo& info, int64_t value);
// Whether there is no input of that index.
bool IsAbsent(std::span<const ValueInfo> inputs, size_t i);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_HANDS_ON_H_
