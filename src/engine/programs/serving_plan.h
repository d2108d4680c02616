// How a model is served: policy and sizes, from its settings and, if they leave something open,
// from the model.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_SERVING_PLAN_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_SERVING_PLAN_H_

#include <string>
#include <vector>

#include "batching/policy.h"
#include "chairlift/engine.h"
#include "graph/batch_axis.h"

namespace chairlift {

// Default rows in a batch of a model in stages.
inline constexpr int kDefaultMaxStagedRows = 32;
// Default tokens for one whose tokens are packed.
inline constexpr int kDefaultMaxStagedTokens = 1024;

struct ServingPlan {
  bool batches = false;
  ModelConfig config;  // every field filled in
  PolicyOptions scheduling;
  std::string diagnosis;
  std::string dropped;  // appended to the diagnosis: settings without effect
};

// Whether that policy supports graphs of this form (stages are cells). True for the empty name,
// which leaves the choice to the model, and for unknown names, which are refused elsewhere.
bool MayServe(const std::string& policy, GraphForm form);

// Decides policy and sizes. InvalidArgument if the configuration requests something that the model
// cannot do.
StatusOr<ServingPlan> PlanServing(const ModelConfig& config, const BatchAxisReport& batching,
                                  int workers);

// The same for a model that runs on packed tokens. `costs`: of batches by tokens, from which the
// policy chooses the budget if `config` leaves it open; null if unknown. They must outlive the
// plan's use.
StatusOr<ServingPlan> PlanTokenServing(const ModelConfig& config, const CostModel* costs,
                                       int workers);

// The same for a model whose batches are padded. `not_proved`: why that relies on the configured
// mask; empty: it is proved.
StatusOr<ServingPlan> PlanPaddedServing(const ModelConfig& config, const std::string& not_proved,
                                        int workers);

// The same for a model that generates, described by `what`. `blocks`: of keys and values, for all
// requests together.
StatusOr<ServingPlan> PlanGenerationServing(const ModelConfig& config, const std::string& what,
                                            int64_t blocks);

// The same for a model of `cells`; `what` describes where they come from. `types`: sizes known
// already, by cell.
StatusOr<ServingPlan> PlanCellServing(const ModelConfig& config, const std::string& what,
                                      const std::vector<std::string>& cells,
                                      std::vector<CellTypeOptions> types);

// The same for a model cut into `stages`. `costs`: of batches by stage; they must outlive the
// plan's use. `packed`: rows are tokens.
StatusOr<ServingPlan> PlanStagedServing(const ModelConfig& config,
                                        const std::vector<std::string>& stages,
                                        std::vector<CellTypeOptions> types, const CostModel* costs,
                                        int workers, bool packed = false);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_SERVING_PLAN_H_
