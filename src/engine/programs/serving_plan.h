// How a model is served: policy and sizes, from its settings and, where they say nothing, from the
// model.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_SERVING_PLAN_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_SERVING_PLAN_H_

#include <string>
#include <vector>

#include "batching/policy.h"
#include "chairlift/engine.h"
#include "graph/batch_axis.h"

namespace chairlift {

// Rows of a batch of a model in stages where its settings do not say.
inline constexpr int kDefaultMaxStagedRows = 32;
// Tokens of one whose tokens are packed.
inline constexpr int kDefaultMaxStagedTokens = 1024;

struct ServingPlan {
  bool batches = false;
  ModelConfig config;  // every field filled in
  PolicyOptions scheduling;
  std::string diagnosis;
  std::string dropped;  // to follow the diagnosis: settings that have no effect
};

// Whether the policy of that name takes graphs of this form (stages are cells); true of the empty
// name, which leaves the choice to the model, and of names that are not known, which are refused
// elsewhere.
bool MayServe(const std::string& policy, GraphForm form);

// Settles policy and sizes. InvalidArgument where the configuration asks for what the model cannot
// do.
StatusOr<ServingPlan> PlanServing(const ModelConfig& config, const BatchAxisReport& batching,
                                  int workers);

// The same for a model that runs on packed tokens. `costs`: of batches by tokens, from which the
// policy chooses the budget that `config` leaves open; null where they are not known. They must
// outlive the plan's use.
StatusOr<ServingPlan> PlanTokenServing(const ModelConfig& config, const CostModel* costs,
                                       int workers);

// The same for a model whose batches are padded. `not_proved` says why that rests on trust in the
// configured mask alone; empty: it is proved.
StatusOr<ServingPlan> PlanPaddedServing(const ModelConfig& config, const std::string& not_proved,
                                        int workers);

// The same for a model that generates, of which `what` is said; `blocks`: of keys and values, what
// all requests may hold together.
StatusOr<ServingPlan> PlanGenerationServing(const ModelConfig& config, const std::string& what,
                                            int64_t blocks);

// The same for a model of `cells`; `what` says how it came to them. `types`: by cell, what is known
// of their sizes already.
StatusOr<ServingPlan> PlanCellServing(const ModelConfig& config, const std::string& what,
                                      const std::vector<std::string>& cells,
                                      std::vector<CellTypeOptions> types);

// The same for a model that is cut into `stages`. `costs`: of batches by stage; they must outlive
// the plan's use. `packed`: rows are tokens.
StatusOr<ServingPlan> PlanStagedServing(const ModelConfig& config,
                                        const std::vector<std::string>& stages,
                                        std::vector<CellTypeOptions> types, const CostModel* costs,
                                        int workers, bool packed = false);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_SERVING_PLAN_H_
