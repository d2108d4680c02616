// Computes an order in which a file's nodes can run. Include it only in .cc files, because it
// includes protobuf.
#ifndef CHAIRLIFT_GRAPH_ONNX_NODE_ORDER_H_
#define CHAIRLIFT_GRAPH_ONNX_NODE_ORDER_H_

#include <string>
#include <unordered_set>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "onnx/onnx_pb.h"

namespace chairlift {

// "node 'name' (Op)", or with the position if the node has no name.
std::string DescribeNode(const onnx::NodeProto& node, int position);

// Positions of `nodes` such that every value is defined before a node or a node's sub-graph reads
// it; the file's own order if it is already correct. `defined_outside` has names that exist before
// the first node runs. Errors: a value defined twice, a value that nothing defines, a cycle (its
// nodes are named).
StatusOr<std::vector<int>> OrderNodes(
    const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes,
    absl::FunctionRef<bool(const std::string&)> defined_outside);

// Names that the nodes and their sub-graphs read.
std::unordered_set<std::string> NamesRead(
    const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_NODE_ORDER_H_
