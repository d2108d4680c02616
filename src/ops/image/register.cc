#include "ops/register.h"

#include "ops/image/image.h"

namespace chairlift {

void RegisterImage(OperatorRegistry& registry) {
  registry.Add(ResizeOperator());
  registry.Add(GridSampleOperator());
  registry.Add(AffineGridOperator());
  registry.Add(RoiAlignOperator());
  registry.Add(MaxRoiPoolOperator());
  registry.Add(NonMaxSuppressionOperator());
  registry.Add(Col2ImOperator());
}

}  // namespace chairlift
