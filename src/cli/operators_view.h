// What `inspect --operators` shows: the time per row of each operator and stage by batch size, and
// the diversities of the model (DVABatch §3, §7.1).
#ifndef CHAIRLIFT_CLI_OPERATORS_VIEW_H_
#define CHAIRLIFT_CLI_OPERATORS_VIEW_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/costs/operator_costs.h"
#include "graph/ir.h"
#include "runtime/executable.h"

namespace chairlift {

// Nodes [first, last) of a graph.
struct NodeRange {
  std::string name;
  size_t first = 0;
  size_t last = 0;
};

// A row for each kind of operator, slowest first, and for each stage. `costs`: by node.
std::string OperatorsTable(const Graph& graph, std::span<const CostByRows> costs,
                           std::span<const NodeRange> stages);

// What varies, one line each: "inputs: all of one size", "operators: …", "load: …".
std::vector<std::string> Diversities(const std::vector<SymbolicSpec>& inputs, const Graph& graph,
                                     std::span<const CostByRows> costs);

// Operators in the order of execution with their time per row: one line for each batch size (like
// Figure 6 of the paper).
std::string OperatorsSvg(const std::string& model, const Graph& graph,
                         std::span<const CostByRows> costs, std::span<const NodeRange> stages);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_OPERATORS_VIEW_H_
