// The operators of this folder, for register.cc.
#ifndef CHAIRLIFT_OPS_IMAGE_IMAGE_H_
#define CHAIRLIFT_OPS_IMAGE_IMAGE_H_

#include "ops/operator.h"

namespace chairlift {

OperatorDef ResizeOperator();
OperatorDef GridSampleOperator();
OperatorDef AffineGridOperator();
OperatorDef RoiAlignOperator();
OperatorDef MaxRoiPoolOperator();
OperatorDef NonMaxSuppressionOperator();
OperatorDef Col2ImOperator();

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_IMAGE_IMAGE_H_
