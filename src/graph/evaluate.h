// Computes one node from tensors at hand, at once: shape rule, compile, run. For constant folding,
// for what is computed once per shape class, and for nodes whose shapes depend on data.
#ifndef CHAIRLIFT_GRAPH_EVALUATE_H_
#define CHAIRLIFT_GRAPH_EVALUATE_H_

#include <span>
#include <vector>

#include "graph/ir.h"

namespace chairlift {

// inputs[i] belongs to node.inputs[i] (not present() where that is kNoValue). Returns one tensor an
// output of the node, not present() for kNoValue outputs. Output 0 of a view shares the bytes of
// input 0. Refuses outputs of more than max_output_bytes each (OutOfRange). The node must
// not be control flow. Where `values` are given, by ValueId, they say the layouts; else all is
// row-major. Thread-safe.
StatusOr<std::vector<Tensor>> EvaluateNode(const Node& node, std::span<const Tensor> inputs,
                                           WeightCache& weights, Team& team, int worker,
                                           int64_t max_output_bytes = Shape::kMaxTensorBytes,
                                           std::span<const Value> values = {});

// The shape rule for inputs whose types, shapes and (where present in `values`) values are given;
// an error where it cannot infer an output's shape. Refuses outputs above max_output_bytes.
StatusOr<std::vector<TensorDesc>> InferConcrete(const Node& node, std::span<const ValueInfo> inputs,
                                                int64_t max_output_bytes = Shape::kMaxTensorBytes);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_EVALUATE_H_
