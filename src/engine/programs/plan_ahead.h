// Plans of the batch sizes that requests may make together, before they do.
//
// The first batch of a size waits for its plan: kernels are compiled, and weights packed as the
// kernels for so many rows read them. On a model of convolutions that takes tenths of a second,
// nearly all of it for the packed forms, which are few: plans of other sizes find them.
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

// What runs batches of requests.
struct BatchPlanner {
  int max_rows = 1;                                 // of a batch
  std::function<Status(int rows, int width)> plan;  // Executable::Prepare()
  std::function<size_t()> weight_bytes;             // Executable::weight_bytes()
};

// `one_row`: the shapes of its inputs, which have their rows along dimension 0. The executable must
// outlive all use.
BatchPlanner PlannerOf(Executable& executable, std::vector<Shape> one_row, int max_rows);

// Makes the plans of one row, for a worker alone and for all of them: the first request finds its
// weights packed, and a model that cannot run is refused.
Status PlanOneRow(const BatchPlanner& planner, int workers);

// Makes those of 2, 3, 4, 6, 8, 12 … rows, and of the most, the smallest of all planners first: in
// the background, where the load has one and may take time. A planner whose weights have come to
// take kPackedAhead times what they take now makes no more. `owner`: of what the planners refer to.
// Once it is gone, nothing more is done.
inline constexpr size_t kPackedAhead = 3;
void PlanBatchesAhead(std::vector<BatchPlanner> planners, std::weak_ptr<const void> owner,
                      const LoadOptions& load);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PLAN_AHEAD_H_
