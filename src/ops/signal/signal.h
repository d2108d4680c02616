// The operators of this folder, for register.cc.
#ifndef CHAIRLIFT_OPS_SIGNAL_SIGNAL_H_
#define CHAIRLIFT_OPS_SIGNAL_SIGNAL_H_

#include "ops/operator.h"

namespace chairlift {

OperatorDef DFTOperator();
OperatorDef STFTOperator();

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_SIGNAL_SIGNAL_H_
