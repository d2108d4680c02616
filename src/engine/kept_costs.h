// Costs of batches by rows, kept on disk between loads (runtime/cost_table.h).
#ifndef CHAIRLIFT_ENGINE_KEPT_COSTS_H_
#define CHAIRLIFT_ENGINE_KEPT_COSTS_H_

#include <string>
#include <vector>

#include "batching/tabulated_costs.h"
#include "graph/ir.h"
#include "runtime/cost_table.h"

namespace chairlift {

// By rows, ascending; empty where they are not known.
using RowCosts = std::vector<TabulatedCosts::Point>;

// Appends what a graph's costs depend on: its operators and shapes, not its weights, so that models
// share costs whatever their weights.
void DescribeForCosts(const Graph& graph, std::string& text);

// Empty where there are none, or damaged ones, or those of another machine or build.
RowCosts KeptCosts(const CostTable::Key& key);
Status KeepCosts(const CostTable::Key& key, const RowCosts& costs);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_KEPT_COSTS_H_
