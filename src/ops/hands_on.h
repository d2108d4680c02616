// Common part of operators that may return an input unchanged, for OperatorDef::hands_on.
//
// A node that returns its input unchanged is removed, and with it all of its checks. So these
// functions answer -1 if a request may contain something that the node refuses. The outputs passed
// to them are those that OperatorDef::infer derives from the inputs.
#ifndef CHAIRLIFT_OPS_HANDS_ON_H_
#define CHAIRLIFT_OPS_HANDS_ON_H_

#include <cstdint>
#include <span>

#include "ops/operator.h"

namespace chairlift {

// Input 0: always; if it is the only input; if output 0 has its shape. The last is for operators
// whose output has a known shape only if their inputs determine it: a shape in a request must stay
// checked.
int AlwaysHandsOn(const Attributes& attributes, std::span<const ValueInfo> inputs,
                  std::span<const ValueInfo> outputs);
int OnlyInputHandsOn(const Attributes& attributes, std::span<const ValueInfo> inputs,
                     std::span<const ValueInfo> outputs);
int SameShapeHandsOn(const Attributes& attributes, std::span<const ValueInfo> inputs,
                     std::span<const ValueInfo> outputs);

// For x op y with one neutral element: x if y is neutral and, with `either`, y if x is.
int NeutralHandsOn(std::span<const ValueInfo> inputs, std::span<const ValueInfo> outputs,
                   double neutral, bool either);

// Whether it is a constant of integers that all have that value.
bool AllEqual(const ValueInfo& info, int64_t value);
// Whether there is no input with that index.
bool IsAbsent(std::span<const ValueInfo> inputs, size_t i);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_HANDS_ON_H_
