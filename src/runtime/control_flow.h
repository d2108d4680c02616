// If, Loop and Scan: which sub-graph runs when, on what, and how its results are put together.
#ifndef CHAIRLIFT_RUNTIME_CONTROL_FLOW_H_
#define CHAIRLIFT_RUNTIME_CONTROL_FLOW_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "graph/ir.h"

namespace chairlift {

// Runs a sub-graph on its formal inputs followed by its captures. The outputs may share bytes
// with the inputs, never with each other's writers: they are not written again.
using RunSubgraph =
    absl::FunctionRef<StatusOr<std::vector<Tensor>>(const Graph&, std::span<const Tensor>)>;

// Runs a node of sub-graphs (OperatorDef::runs_bodies) on its inputs, captures included. A loop
// that does not end within kMaxLoopIterations, or whose scan outputs take more than `max_bytes`
// while they are put together, is OutOfRange.
StatusOr<std::vector<Tensor>> RunControlFlow(const Node& node, std::span<const Tensor> inputs,
                                             int64_t max_bytes, RunSubgraph run);

inline constexpr int64_t kMaxLoopIterations = int64_t{1} << 24;

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_CONTROL_FLOW_H_
