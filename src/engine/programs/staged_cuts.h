// Where a model is cut into stages, by its settings and the costs of its nodes.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_STAGED_CUTS_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_STAGED_CUTS_H_

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "engine/costs/store.h"
#include "engine/programs/loading_model.h"
#include "graph/stages/stages.h"
#include "runtime/executable.h"

namespace chairlift {

struct CutModel {
  StagedModel model;
  // By stage: the sum over its nodes. Empty if they were not timed at several sizes.
  std::vector<CostSamples> costs;
  std::string tried;  // which numbers of stages; empty: none
};

// The inputs for timing nodes.
struct StageInputs {
  // For a batch of that many rows or, if tokens are packed, tokens.
  std::function<StatusOr<std::vector<Tensor>>(const Executable& whole, int rows)> make;
  int max_rows = 1;      // maximum
  int request_rows = 1;  // in a typical request
};

// The cuts in a model's settings; `others`: alternative names. The graph has not been through the
// passes.
StageCuts CutsOf(const LoadingModel& loading, const OtherNames& others = {});

// `graph` has been through the passes; `rows` as in CutIntoStages(). Times nodes as far as the load
// allows. Errors as in CutIntoStages().
StatusOr<CutModel> CutStagedModel(const Graph& graph, const std::set<std::string>& rows,
                                  StageCuts cuts, const StageInputs& inputs,
                                  const LoadingModel& loading, const ExecutableOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_STAGED_CUTS_H_
