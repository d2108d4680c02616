// Converts AttributeProto to attribute values, with checks against ONNX's definition of each
// attribute. Include it only in .cc files, because it includes protobuf.
#ifndef CHAIRLIFT_GRAPH_ONNX_ATTRIBUTE_PROTO_H_
#define CHAIRLIFT_GRAPH_ONNX_ATTRIBUTE_PROTO_H_

#include <string_view>

#include "base/status.h"
#include "graph/onnx/external_data.h"
#include "onnx/onnx_pb.h"
#include "ops/attributes.h"

namespace chairlift {

// The declared type, or, if a (very old) file declares none, the type of the fields that are set.
// UNDEFINED if they do not agree.
onnx::AttributeProto::AttributeType AttributeType(const onnx::AttributeProto& proto);

// Refuses an attribute that no operator of ONNX has, or whose type differs from ONNX's. `name` is
// that of the node's attribute: the value may belong to another one that it refers to.
Status CheckAttribute(std::string_view name, const onnx::AttributeProto& value);

// The value of an attribute that is not a graph. Unimplemented for sparse tensors, types and lists
// of tensors.
StatusOr<AttributeValue> DecodeAttribute(const onnx::AttributeProto& proto,
                                         const DataFolder& data_folder);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_ATTRIBUTE_PROTO_H_
