// No batching: every node runs alone, in order of readiness.
#ifndef CHAIRLIFT_BATCHING_POLICIES_NONE_H_
#define CHAIRLIFT_BATCHING_POLICIES_NONE_H_

#include <memory>

#include "batching/policy.h"

namespace chairlift {

// The window of one row, which nobody is held back for. All options are ignored.
StatusOr<std::unique_ptr<Scheduler>> MakeNoneScheduler(const PolicyOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_NONE_H_
