// Which attributes an operator has, by opset. onnx's checker and ONNX Runtime refuse a node with an
// unknown attribute, so no working file has one.
#ifndef CHAIRLIFT_GRAPH_ONNX_OPERATOR_ATTRIBUTES_H_
#define CHAIRLIFT_GRAPH_ONNX_OPERATOR_ATTRIBUTES_H_

#include <string_view>

#include "base/status.h"

namespace chairlift {

// Whether a tool left the attribute as a note that does not affect the result: its name starts with
// two underscores (the rule of ONNX Runtime).
bool IsMark(std::string_view attribute);

// InvalidArgument if the operator, as it is in that opset of its domain, has no such attribute. OK
// if the operator is not known: it is refused elsewhere.
Status CheckOperatorHas(std::string_view attribute, std::string_view domain, std::string_view op,
                        int opset);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_OPERATOR_ATTRIBUTES_H_
