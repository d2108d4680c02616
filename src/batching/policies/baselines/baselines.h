// Policies for comparison in simulations and benchmarks. Each is described in its file.
#ifndef CHAIRLIFT_BATCHING_POLICIES_BASELINES_BASELINES_H_
#define CHAIRLIFT_BATCHING_POLICIES_BASELINES_BASELINES_H_

#include <memory>

#include "batching/policy.h"

namespace chairlift {

StatusOr<std::unique_ptr<Scheduler>> MakeBucketedScheduler(const PolicyOptions& options);
StatusOr<std::unique_ptr<Scheduler>> MakeGraphMergeScheduler(const PolicyOptions& options);
StatusOr<std::unique_ptr<Scheduler>> MakeIdealScheduler(const PolicyOptions& options);
StatusOr<std::unique_ptr<Scheduler>> MakeNaiveScheduler(const PolicyOptions& options);
StatusOr<std::unique_ptr<Scheduler>> MakeStaticScheduler(const PolicyOptions& options);
StatusOr<std::unique_ptr<Scheduler>> MakeLeaveOnlyScheduler(const PolicyOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_BASELINES_BASELINES_H_
