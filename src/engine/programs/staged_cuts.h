// Where a model is cut into stages, by what its settings say and its nodes take.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_STAGED_CUTS_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_STAGED_CUTS_H_

#include <set>
#include <string>
#include <vector>

#include "engine/costs/store.h"
#include "engine/programs/loading_model.h"
#include "graph/stages/stages.h"

namespace chairlift {

struct CutModel {
  StagedModel model;
  // By stage: what its nodes take together. Empty where they were not timed at several sizes.
  std::vector<CostSamples> costs;
  std::string tried;  // which numbers of stages; empty: none were
};

// `graph` has been through the passes; `rows` as CutIntoStages() has them; `shapes`: of its inputs,
// of one row. Times nodes as far as the load allows. Errors as CutIntoStages().
StatusOr<CutModel> CutStagedModel(const Graph& graph, const std::set<std::string>& rows,
                                  const std::vector<Shape>& shapes, const LoadingModel& loading,
                                  const ExecutableOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_STAGED_CUTS_H_
