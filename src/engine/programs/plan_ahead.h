// Makes plans for the batch sizes that requests may form, before they do.
//
// The first batch of a size waits for its plan: kernels are compiled, and weights packed for the
// kernels of that number of rows. For a model of convolutions that takes tenths of a second, mostly
// for the packed forms. There are few of them, so plans of other sizes reuse them.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PLAN_AHEAD_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PLAN_AHEAD_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "chairlift/tensor.h"
#include "engine/programs/loading_model.h"
#include "runtime/executable.h"

namespace chairlift {

// An executable that runs batches of requests.
struct BatchPlanner {
  int max_rows = 1;                                 // in a batch
  std::function<Status(int rows, int width)> plan;  // Executable::Prepare()
  std::function<size_t()> weight_bytes;             // Executable::weight_bytes()
};

// `one_row`: the shapes of its inputs, which have rows along dimension 0. The executable must
// outlive all use.
BatchPlanner PlannerOf(Executable& executable, std::vector<Shape> one_row, int max_rows);

// Makes the plans of one row, for a single worker and for all of them. So the first request finds
// its weights packed, and a model that cannot run is refused.
Status PlanOneRow(const BatchPlanner& planner, int workers);

// Makes the plans of 2, 3, 4, 6, 8, 12 … rows and of the maximum, smallest of all planners first.
// It does so in the background if the load has a thread for that and may take time. A planner stops
// when its weights take kPackedAhead times their current memory. `owner` owns what the planners
// refer to; when it is gone, nothing more is done.
inline constexpr size_t kPackedAhead = 3;
void PlanBatchesAhead(std::vector<BatchPlanner> planners, std::weak_ptr<const void> owner,
                      const LoadOptions& load);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PLAN_AHEAD_H_
