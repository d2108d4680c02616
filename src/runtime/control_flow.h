// If, Loop and Scan: chooses which sub-graph runs when and with which inputs, and combines its
// results.
#ifndef CHAIRLIFT_RUNTIME_CONTROL_FLOW_H_
#define CHAIRLIFT_RUNTIME_CONTROL_FLOW_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "graph/ir.h"

namespace chairlift {

// Runs a sub-graph on its formal inputs followed by its captures. Outputs may share bytes with the
// inputs; those bytes are not written again.
using RunSubgraph =
    absl::FunctionRef<StatusOr<std::vector<Tensor>>(const Graph&, std::span<const Tensor>)>;

// Runs a node with sub-graphs (OperatorDef::runs_bodies) on its inputs, including captures.
// OutOfRange if a loop does not end within kMaxLoopIterations, or if its scan outputs need more
// than `max_bytes` while they are combined.
StatusOr<std::vector<Tensor>> RunControlFlow(const Node& node, std::span<const Tensor> inputs,
                                             int64_t max_bytes, RunSubgraph run);

inline constexpr int64_t kMaxLoopIterations = int64_t{1} << 24;

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_CONTROL_FLOW_H_
