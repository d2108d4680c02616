#include "ops/register.h"

#include "ops/operator.h"
#include "ops/recurrent/recurrent_operators.h"

namespace chairlift {

void RegisterRecurrent(OperatorRegistry& registry) {
  registry.Add(LstmOperator());
  registry.Add(GruOperator());
  registry.Add(RnnOperator());
  registry.Add(LstmGatesOperator());
  registry.Add(RecurrentStepOperator());
}

}  // namespace chairlift
