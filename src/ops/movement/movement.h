// The operators of this folder, for register.cc.
#ifndef CHAIRLIFT_OPS_MOVEMENT_MOVEMENT_H_
#define CHAIRLIFT_OPS_MOVEMENT_MOVEMENT_H_

#include "ops/operator.h"

namespace chairlift {

OperatorDef ReshapeOperator();
OperatorDef FlattenOperator();
OperatorDef SqueezeOperator();
OperatorDef UnsqueezeOperator();
OperatorDef TransposeOperator();
OperatorDef ChannelShuffleOperator();
OperatorDef ConcatOperator();
OperatorDef SplitOperator();
OperatorDef SliceOperator();
OperatorDef ExpandOperator();
OperatorDef GatherOperator();
OperatorDef TileOperator();
OperatorDef PadOperator();
OperatorDef CenterCropPadOperator();
OperatorDef DepthToSpaceOperator();
OperatorDef SpaceToDepthOperator();
OperatorDef ReverseSequenceOperator();
OperatorDef GatherElementsOperator();
OperatorDef GatherNDOperator();
OperatorDef ScatterElementsOperator();
OperatorDef ScatterNDOperator();

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_MOVEMENT_MOVEMENT_H_
