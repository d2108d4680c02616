// Padding with bucketing (BatchMaker §7.1): what TensorFlow and MXNet do with recurrent models.
//
// A request's length is the most rows that it has of any one cell type. Bucket i holds lengths in
// (i·width, (i+1)·width]; a batch takes requests of one bucket, buckets in turn, and starts as soon
// as a worker is idle. All in it are padded to the bucket's upper length: every cell type runs as
// many steps, and a projection over all steps has as many rows for each request, as the longest
// needs, rounded up to the width; whoever has ended is a row of padding. One type is run to its end
// before the next phase begins. All answers leave when the batch ends.
//
// For chains. A tree is padded to the longest path of each type, which is as wasteful as it sounds.
#ifndef CHAIRLIFT_BATCHING_POLICIES_BUCKETED_H_
#define CHAIRLIFT_BATCHING_POLICIES_BUCKETED_H_

#include <memory>

#include "batching/policy.h"

namespace chairlift {

StatusOr<std::unique_ptr<Scheduler>> MakeBucketedScheduler(const PolicyOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_BUCKETED_H_
