// Chooses the number of stages of a model: simulates several numbers in virtual time.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_STAGE_COUNT_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_STAGE_COUNT_H_

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "graph/stages/stages.h"

namespace chairlift {

// How the stages would be served.
struct StageTrial {
  std::vector<int> sizes;  // for StageCuts::row_costs, which are in nanoseconds
  std::string policy;
  int max_batch_size = 1;
  int workers = 1;
  int request_rows = 1;  // per request; one of `sizes`
};

// The mean latency of randomly arriving requests at 60% and at 90% of the throughput of the uncut
// model, relative to that of a single request. Stages take the time of their nodes plus a small
// cost per task.
double LatencyOfStages(std::span<const ModelStage> stages, const StageTrial& trial);

// The smallest of 2, 3, 4, 5, 6, 8, 10 and 12 stages whose latency is within 2% of the best. `cut`:
// cuts the model into that many stages; an error if there are not enough places. `tried`: receives
// one line of text. An error if not even two stages are possible.
StatusOr<StagedModel> CutByTrying(const std::function<StatusOr<StagedModel>(int stages)>& cut,
                                  const StageTrial& trial, std::string& tried);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_STAGE_COUNT_H_
