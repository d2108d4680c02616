// What a task costs, from what its steps do.
#ifndef CHAIRLIFT_BATCHING_TASK_COST_H_
#define CHAIRLIFT_BATCHING_TASK_COST_H_

#include <algorithm>

#include "batching/scheduler.h"

namespace chairlift {

// Calls visit(rows) for each step of a task, the padding's included.
template <typename Visit>
void ForEachStepOf(const Task& task, Visit&& visit) {
  visit(task.rows + task.padding_rows);
  size_t rows = task.nodes.size();
  for (int32_t step = 1; step < task.steps(); ++step) {
    while (task.nodes[rows - 1].steps <= step) --rows;
    visit(static_cast<int32_t>(rows));
  }
}

inline Duration TaskCost(const CostModel& costs, const Task& task) {
  const Duration fixed = costs.FixedCost(task.type);
  Duration cost = fixed;
  ForEachStepOf(task, [&](int32_t rows) {
    cost += std::max(costs.Cost(task.type, rows, task.length) - fixed, Duration(0));
  });
  return cost;
}

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_TASK_COST_H_
