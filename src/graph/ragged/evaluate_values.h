// A part of a graph, cut out and run.
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

// The inputs of the graph whose elements (not only sizes) `value` depends on, by place.
// Unimplemented where its dependencies are not known.
StatusOr<std::vector<int>> ReadInputs(const Graph& graph, ValueId value);

// `targets` computed from the given inputs (by place; others may not be read). Where `sizes` are
// given, by name, Shape and Size follow from declared dimensions alone, and what they are of need
// not be computed. Memory is bounded: ResourceExhausted.
StatusOr<std::vector<Tensor>> EvaluateValues(const Graph& graph, std::span<const ValueId> targets,
                                             const std::map<int, Tensor>& inputs,
                                             const std::map<std::string, int64_t>& sizes);

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_EVALUATE_VALUES_H_
