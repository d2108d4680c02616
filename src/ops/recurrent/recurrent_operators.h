// The operators of this family, for register.cc.
#ifndef CHAIRLIFT_OPS_RECURRENT_RECURRENT_OPERATORS_H_
#define CHAIRLIFT_OPS_RECURRENT_RECURRENT_OPERATORS_H_

#include <string>

#include "ops/operator.h"

namespace chairlift {

OperatorDef LstmOperator();
OperatorDef GruOperator();
OperatorDef RnnOperator();
OperatorDef LstmGatesOperator();
OperatorDef RecurrentStepOperator();

// chairlift::LstmGates' attribute `order`: the gate of each quarter, a permutation of "ifgo".
StatusOr<std::string> LstmGatesOrder(const Attributes& attributes);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_RECURRENT_RECURRENT_OPERATORS_H_
