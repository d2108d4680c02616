// Costs of batches by rows and length, saved on disk between loads (runtime/cost_table.h).
#ifndef CHAIRLIFT_ENGINE_COSTS_STORE_H_
#define CHAIRLIFT_ENGINE_COSTS_STORE_H_

#include <string>
#include <vector>

#include "batching/length_costs.h"
#include "graph/ir.h"
#include "runtime/cost_table.h"

namespace chairlift {

// Sorted by rows, then length (0 if rows have none); empty if unknown.
using CostSamples = std::vector<LengthCosts::Sample>;

// Appends what a graph's costs depend on: its operators and shapes. Weights are not included, so
// models that differ only in weights share costs.
void DescribeForCosts(const Graph& graph, std::string& text);

// Empty if there are none, or if they are damaged, from another machine or build, or implausible.
CostSamples KeptCosts(const CostTable::Key& key);
Status KeepCosts(const CostTable::Key& key, const CostSamples& samples);
// Logs once per process that costs could not be saved: the next load measures them again.
void WarnNotKept(const Status& kept);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_COSTS_STORE_H_
