// What operators share that may hand on an input as it is, for OperatorDef::hands_on.
#ifndef CHAIRLIFT_OPS_HANDS_ON_H_
#define CHAIRLIFT_OPS_HANDS_ON_H_

#include <cstdint>
#include <span>

#include "ops/operator.h"

namespace chairlift {

// Input 0 always; where it is the only input; where output 0 has its shape.
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

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_HANDS_ON_H_
