// The cost of a task from the costs of its steps.
#ifndef CHAIRLIFT_BATCHING_TASK_COST_H_
#define CHAIRLIFT_BATCHING_TASK_COST_H_

#include <algorithm>

#include "batching/scheduler.h"

namespace chairlift {

// Calls visit(rows, padding) for each step of a task: requested rows, and others that are computed
// as well.
template <typename Visit>
void ForEachStepOf(const Task& task, Visit&& visit) {
  visit(task.rows, task.padding_rows);
  size_t rows = task.nodes.size();
  for (int32_t step = 1; step < task.steps(); ++step) {
    while (task.nodes[rows - 1].steps <= step) --rows;
    const auto asked = static_cast<int32_t>(rows);
    visit(asked, task.padded_steps ? task.rows + task.padding_rows - asked : 0);
  }
}

inline Duration TaskCost(const CostModel& costs, const Task& task) {
  const Duration fixed = costs.FixedCost(task.type);
  const int32_t length = task.sequences > 0 ? task.sequences : task.length;
  Duration cost = fixed;
  ForEachStepOf(task, [&](int32_t rows, int32_t padding) {
    cost += std::max(costs.Cost(task.type, rows + padding, length) - fixed, Duration(0));
  });
  return cost;
}

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_TASK_COST_H_
