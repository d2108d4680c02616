#include "batching/length_plan.h"

#include <algorithm>
#include <cassert>

namespace chairlift {

LengthPlan PlanLengths(std::span<const LengthItem> items, int max_rows,
                       absl::FunctionRef<std::span<const double>(int32_t length)> cost_of) {
  struct State {
    double cost = 0;    // of the first i items
    int32_t begin = 0;  // of the last of those batches
  };
  std::vector<State> states(items.size() + 1);
  for (size_t i = 1; i <= items.size(); ++i) {
    assert(i == 1 || items[i - 2].length <= items[i - 1].length);
    const std::span<const double> costs = cost_of(items[i - 1].length);
    const int32_t own = items[i - 1].rows;
    State& state = states[i];
    state.begin = static_cast<int32_t>(i) - 1;
    state.cost = states[i - 1].cost +
                 (own <= max_rows ? costs[own - 1] : costs[max_rows - 1] * own / max_rows);
    int64_t rows = own;
    for (size_t j = i - 1; j > 0; --j) {
      rows += items[j - 1].rows;
      if (rows > max_rows) break;
      const double cost = states[j - 1].cost + costs[rows - 1];
      if (cost < state.cost) state = {cost, static_cast<int32_t>(j) - 1};
    }
  }
  LengthPlan plan;
  for (auto end = static_cast<int32_t>(items.size()); end > 0; end = plan.batches.back().begin) {
    const int32_t begin = states[end].begin;
    plan.batches.push_back({begin, end, states[end].cost - states[begin].cost});
  }
  std::reverse(plan.batches.begin(), plan.batches.end());
  return plan;
}

}  // namespace chairlift
