// Extracts a part of a graph and runs it.
#ifndef CHAIRLIFT_GRAPH_RAGGED_EVALUATE_VALUES_H_
#define CHAIRLIFT_GRAPH_RAGGED_EVALUATE_VALUES_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "graph/ir.h"

namespace chairlift::ragged {

// The graph inputs on whose elements (not only sizes) `value` depends, by index. Unimplemented if
// its dependencies are unknown.
StatusOr<std::vector<int>> ReadInputs(const Graph& graph, ValueId value);

// Computes `targets` from the given inputs (by index; no others may be read). If `sizes` are given,
// by name, Shape and Size follow from declared dimensions alone, and their inputs need not be
// computed. Memory is bounded: ResourceExhausted.
StatusOr<std::vector<Tensor>> EvaluateValues(const Graph& graph, std::span<const ValueId> targets,
                                             const std::map<int, Tensor>& inputs,
                                             const std::map<std::string, int64_t>& sizes);

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_EVALUATE_VALUES_H_
