// The order in which a file's nodes can run. Only for .cc files: it brings in protobuf.
#ifndef CHAIRLIFT_GRAPH_ONNX_NODE_ORDER_H_
#define CHAIRLIFT_GRAPH_ONNX_NODE_ORDER_H_

#include <string>
#include <unordered_set>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "onnx/onnx_pb.h"

namespace chairlift {

// "node 'name' (Op)", or by position where the node has no name.
std::string DescribeNode(const onnx::NodeProto& node, int position);

// Positions of `nodes` such that every value is defined before it is read, by a node or by a
// node's sub-graph; the file's own order where it is such an order. `defined_outside` has names
// that are there before the first node runs. Errors: a value defined twice, a value that nothing
// defines, a cycle (its nodes are named).
StatusOr<std::vector<int>> OrderNodes(
    const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes,
    absl::FunctionRef<bool(const std::string&)> defined_outside);

// What the nodes and their sub-graphs read.
std::unordered_set<std::string> NamesRead(
    const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_NODE_ORDER_H_
