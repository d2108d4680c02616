// What `inspect --operators` shows: how long each operator and stage takes a row by batch size, and
// which diversities that gives a model (DVABatch §3, §7.1).
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

// A row for each kind of operator, the slowest first, and for each stage. `costs`: by node.
std::string OperatorsTable(const Graph& graph, std::span<const CostByRows> costs,
                           std::span<const NodeRange> stages);

// What varies, a line each: "inputs: all of one size", "operators: …", "load: …".
std::vector<std::string> Diversities(const std::vector<SymbolicSpec>& inputs, const Graph& graph,
                                     std::span<const CostByRows> costs);

// Operators in the order in which they run, how long they take a row: a line for each batch size
// (as the document's Figure 6).
std::string OperatorsSvg(const std::string& model, const Graph& graph,
                         std::span<const CostByRows> costs, std::span<const NodeRange> stages);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_OPERATORS_VIEW_H_
