#include "ops/register.h"

#include "ops/signal/signal.h"

namespace chairlift {

void RegisterSignal(OperatorRegistry& registry) {
  registry.Add(DFTOperator());
  registry.Add(STFTOperator());
}

}  // namespace chairlift
