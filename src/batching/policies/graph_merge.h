// Dynamic graph merging (BatchMaker §2.3): what DyNet and TensorFlow Fold do with trees.
//
// A batch takes up to max_batch_size requests that wait, of any structure, and runs their graphs
// together, level by level: all ready nodes of equal type are one task, however many rows that
// makes. All answers leave when the batch ends.
#ifndef CHAIRLIFT_BATCHING_POLICIES_GRAPH_MERGE_H_
#define CHAIRLIFT_BATCHING_POLICIES_GRAPH_MERGE_H_

#include <memory>

#include "batching/policy.h"

namespace chairlift {

StatusOr<std::unique_ptr<Scheduler>> MakeGraphMergeScheduler(const PolicyOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_GRAPH_MERGE_H_
