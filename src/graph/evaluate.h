// Computes one node from given tensors immediately: shape rule, compile, run. For constant folding,
// for values that are computed once per shape class, and for nodes whose shapes depend on data.
#ifndef CHAIRLIFT_GRAPH_EVALUATE_H_
#define CHAIRLIFT_GRAPH_EVALUATE_H_

#include <span>
#include <vector>

#include "graph/ir.h"

namespace chairlift {

// inputs[i] is for node.inputs[i] (not present() if that is kNoValue). Returns one tensor per
// output of the node, not present() for kNoValue outputs. Output 0 of a view shares the bytes of
// input 0. OutOfRange for outputs of more than max_output_bytes each. The node must not be control
// flow. `values`, by ValueId, give the layouts; without them all is row-major. Thread-safe.
StatusOr<std::vector<Tensor>> EvaluateNode(const Node& node, std::span<const Tensor> inputs,
                                           WeightCache& weights, Team& team, int worker,
                                           int64_t max_output_bytes = Shape::kMaxTensorBytes,
                                           std::span<const Value> values = {});

// Applies the shape rule to inputs with given types, shapes and (if present in `values`) values. An
// error if it cannot infer an output's shape, or if an output is larger than max_output_bytes.
StatusOr<std::vector<TensorDesc>> InferConcrete(const Node& node, std::span<const ValueInfo> inputs,
                                                int64_t max_output_bytes = Shape::kMaxTensorBytes);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_EVALUATE_H_
