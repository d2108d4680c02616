// Where a model is cut into stages, by what its settings say and its nodes take.
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
  // By stage: what its nodes take together. Empty where they were not timed at several sizes.
  std::vector<CostSamples> costs;
  std::string tried;  // which numbers of stages; empty: none were
};

// What the nodes are timed on.
struct StageInputs {
  // Of a batch of so many rows or, where tokens are packed, tokens.
  std::function<StatusOr<std::vector<Tensor>>(const Executable& whole, int rows)> make;
  int max_rows = 1;      // at most
  int request_rows = 1;  // of a likely request
};

// What a model's settings say of where to cut; `others`: names in them. Its graph has not been
// through the passes.
StageCuts CutsOf(const LoadingModel& loading, const OtherNames& others = {});

// `graph` has been through the passes; `rows` as CutIntoStages() has them. Times nodes as far as
// the load allows. Errors as CutIntoStages().
StatusOr<CutModel> CutStagedModel(const Graph& graph, const std::set<std::string>& rows,
                                  StageCuts cuts, const StageInputs& inputs,
                                  const LoadingModel& loading, const ExecutableOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_STAGED_CUTS_H_
