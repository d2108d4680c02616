#include "engine/programs/staged_program.h"

#include <utility>

namespace chairlift {

StagedProgram::StagedProgram(Signature signature, ServingPlan plan, StageLayout layout,
                             std::unique_ptr<StepCosts> costs,
                             std::unique_ptr<GuardedStagePolicy> policy, int32_t many_rows)
    : Program("staged", std::move(signature), std::move(plan)),
      layout_(std::move(layout)),
      costs_(std::move(costs)),
      policy_(std::move(policy)),
      many_rows_(many_rows) {
  plan_.scheduling.stage_policy = policy_.get();
}

std::vector<CellBatching> StagedProgram::CellBatchings() const {
  std::vector<std::string> names;
  for (int stage = 0; stage < StagedProgram::num_cells(); ++stage) names.push_back(CellName(stage));
  return CellBatchingsOf(names, costs_->timed(), plan_.scheduling.cell_types,
                         plan_.scheduling.max_batch_size);
}

Duration StagedProgram::LeastTime(const RequestGraph& request) const {
  const std::vector<CellCosts>& timed = costs_->timed();
  Duration sum(0);
  for (int32_t i = 0; i < request.num_nodes(); ++i) {
    const GraphNode node = request.run(i);
    const auto stage = static_cast<size_t>(node.cell);
    if (stage >= timed.size() || timed[stage].empty()) return Duration(0);
    sum += Duration(static_cast<int64_t>(CostNsOfRows(timed[stage], node.rows)));
  }
  return sum;
}

Duration StagedProgram::Cost(int cell, const Task& task) const {
  return costs_->Cost(static_cast<CellType>(cell), task.rows, 0);
}

double StagedProgram::UnitCostNs(int cell) const {
  return static_cast<double>(costs_->Cost(static_cast<CellType>(cell), many_rows_, 0).count()) /
         many_rows_;
}

void StagedProgram::Learn(const Task& task, bool helped, Duration measured) {
  if (!helped) costs_->Learn(task, measured);
}

}  // namespace chairlift
