// Into how many stages a model is cut: several numbers are tried, in virtual time.
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
  std::vector<int> sizes;  // by StageCuts::row_costs, which are in nanoseconds
  std::string policy;
  int max_batch_size = 1;
  int workers = 1;
  int request_rows = 1;  // of each request; one of `sizes`
};

// The mean latency of requests that come at random at 60% and at 90% of what the machine does with
// the model as a whole, over what one takes alone there. Stages take what their nodes do, and each
// task a little of its own.
double LatencyOfStages(std::span<const ModelStage> stages, const StageTrial& trial);

// Of 2, 3, 4, 5, 6, 8, 10 and 12 stages, the fewest that come within 2% of the least latency of
// all. `cut`: the model in so many stages; an error where it has no places for them. `tried`: one
// line for people. An error where not even two stages can be cut.
StatusOr<StagedModel> CutByTrying(const std::function<StatusOr<StagedModel>(int stages)>& cut,
                                  const StageTrial& trial, std::string& tried);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_STAGE_COUNT_H_
