// AttributeProto to attribute values, checked against what ONNX says of each attribute. Only for
// .cc files: it brings in protobuf.
#ifndef CHAIRLIFT_GRAPH_ONNX_ATTRIBUTE_PROTO_H_
#define CHAIRLIFT_GRAPH_ONNX_ATTRIBUTE_PROTO_H_

#include <string_view>

#include "base/status.h"
#include "graph/onnx/external_data.h"
#include "onnx/onnx_pb.h"
#include "ops/attributes.h"

namespace chairlift {

// The declared type, or what the fields that are set amount to where a (very old) file declares
// none. UNDEFINED where they do not agree on one.
onnx::AttributeProto::AttributeType AttributeType(const onnx::AttributeProto& proto);

// Refuses an attribute that no operator of ONNX has, and one of another type than ONNX gives it.
// `name` is that of the node's attribute: the value may be one that it refers to.
Status CheckAttribute(std::string_view name, const onnx::AttributeProto& value);

// The value of an attribute that is no graph. Unimplemented for sparse tensors, types and lists of
// tensors.
StatusOr<AttributeValue> DecodeAttribute(const onnx::AttributeProto& proto,
                                         const DataFolder& data_folder);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_ATTRIBUTE_PROTO_H_
