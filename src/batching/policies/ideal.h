// The ideal of a fixed structure (BatchMaker §7.5, Fig. 15): requests whose graphs are equal share
// a batch, and each task is one and the same node of all of them. Nothing is padded, nothing is
// merged at run time; a batch starts as soon as a worker is idle, and all answers leave when it
// ends.
#ifndef CHAIRLIFT_BATCHING_POLICIES_IDEAL_H_
#define CHAIRLIFT_BATCHING_POLICIES_IDEAL_H_

#include <memory>

#include "batching/policy.h"

namespace chairlift {

StatusOr<std::unique_ptr<Scheduler>> MakeIdealScheduler(const PolicyOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_IDEAL_H_
