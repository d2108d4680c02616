#include "ops/register.h"

#include "ops/movement/movement.h"

namespace chairlift {

void RegisterMovement(OperatorRegistry& registry) {
  registry.Add(ReshapeOperator());
  registry.Add(FlattenOperator());
  registry.Add(SqueezeOperator());
  registry.Add(UnsqueezeOperator());
  registry.Add(TransposeOperator());
  registry.Add(ChannelShuffleOperator());
  registry.Add(ConcatOperator());
  registry.Add(SplitOperator());
  registry.Add(SliceOperator());
  registry.Add(ExpandOperator());
  registry.Add(GatherOperator());
  registry.Add(TileOperator());
  registry.Add(PadOperator());
  registry.Add(CenterCropPadOperator());
  registry.Add(DepthToSpaceOperator());
  registry.Add(SpaceToDepthOperator());
  registry.Add(ReverseSequenceOperator());
  registry.Add(GatherElementsOperator());
  registry.Add(GatherNDOperator());
  registry.Add(ScatterElementsOperator());
  registry.Add(ScatterNDOperator());
}

}  // namespace chairlift
