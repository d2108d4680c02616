// Costs of batches by rows and length, kept on disk between loads (runtime/cost_table.h).
#ifndef CHAIRLIFT_ENGINE_COSTS_STORE_H_
#define CHAIRLIFT_ENGINE_COSTS_STORE_H_

#include <string>
#include <vector>

#include "batching/length_costs.h"
#include "graph/ir.h"
#include "runtime/cost_table.h"

namespace chairlift {

// In order of rows, then length (0 where rows have none); empty where they are not known.
using CostSamples = std::vector<LengthCosts::Sample>;

// Appends what a graph's costs depend on: its operators and shapes, not its weights, so that models
// share costs whatever their weights.
void DescribeForCosts(const Graph& graph, std::string& text);

// Empty where there are none, or damaged ones, or those of another machine or build, or ones that
// cannot have been measured here.
CostSamples KeptCosts(const CostTable::Key& key);
Status KeepCosts(const CostTable::Key& key, const CostSamples& samples);
// Logs, once in a process, that costs could not be kept: the next load measures them again.
void WarnNotKept(const Status& kept);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_COSTS_STORE_H_
