// Common part of programs for models in stages, whatever computes a stage.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_STAGED_PROGRAM_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_STAGED_PROGRAM_H_

#include <memory>
#include <string>
#include <vector>

#include "engine/programs/cells/cell_costs.h"
#include "engine/programs/program.h"
#include "engine/programs/stage_plugin.h"
#include "engine/programs/staged_request.h"

namespace chairlift {

class StagedProgram : public Program {
 public:
  int num_cells() const override { return static_cast<int>(layout_.stages.size()); }
  std::vector<CellBatching> CellBatchings() const override;
  std::vector<std::string> Remarks() const override { return RemarksOn(policy_.get()); }

  // Up to the request's first exit.
  Duration LeastTime(const RequestGraph& request) const override;
  Duration Cost(int cell, const Task& task) const override;
  double UnitCostNs(int cell) const override;
  void Learn(const Task& task, bool helped, Duration measured) override;

 protected:
  // `many_rows`: in a large batch. `policy`: null: there is none.
  StagedProgram(Signature signature, ServingPlan plan, StageLayout layout,
                std::unique_ptr<StepCosts> costs, std::unique_ptr<GuardedStagePolicy> policy,
                int32_t many_rows);

  const StageLayout layout_;

 private:
  // Also used by the scheduler.
  const std::unique_ptr<StepCosts> costs_;
  const std::unique_ptr<GuardedStagePolicy> policy_;
  const int32_t many_rows_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_STAGED_PROGRAM_H_
