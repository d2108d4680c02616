// Multi-entry multi-exit batching (DVABatch §5–7) of models cut into stages. Requests are chains of
// one node per stage, all with the same number of rows. They may grow from stage to stage
// (PolicyOptions::stage_types): a request that does not grow has exited early, and one that grows
// by a later stage skips the stages between.
//
// Requests with equal types at every stage form batches of up to max_batch_size rows. There are two
// operations besides forming a new batch. **stretch**: while the latest batch runs, new requests
// may join it, catch up, and be merged with it. **split**: after a stage, a batch continues as
// several. Each query passes each stage once. The last stages have priority. A worker has one task
// at a time, because the next step of a batch is decided when a stage has run.
//
// Queries that exit early, are cancelled or expire leave before their next stage. Their places in
// the batch stay empty and cost nothing. Queries that skip stages are split off and enter the later
// stage at once.
#ifndef CHAIRLIFT_BATCHING_POLICIES_STAGED_H_
#define CHAIRLIFT_BATCHING_POLICIES_STAGED_H_

#include <memory>

#include "batching/policy.h"

namespace chairlift {

// If PolicyOptions::stage_policy is set, its rules replace all of these except the buffer pairs.
struct StagedOptions {
  // Policy I, input diversity: requests share a batch if their lengths are in the same bucket
  // (PolicyOptions::bucket_width). Batches of several buckets run at the same time, with
  // max_batch_size rows in total. If queue_delay is 0, the delay is the first stage's time at
  // max_batch_size.
  bool by_length = false;
  // Policy II, operator diversity: stage costs decide how many waiting queries a new batch takes,
  // and after a stage how the batch is divided for the remaining stages. The candidates are all
  // waiting queries, half of them, a quarter and so on down to one. The chosen size minimises the
  // sum of latencies plus the cost of their work to later queries. That cost is in proportion to
  // how busy recent arrivals keep the workers, so that work is saved when it is scarce. Needs
  // costs. (The paper's rule divides if the parts take no longer than the whole, whatever the
  // load.)
  //
  // In addition: a batch that is not split runs a stage in pieces if that takes no longer. The
  // pieces continue separately and meet before the first stage that is better with more of them.
  bool split = false;
  // Policy III, load diversity: new requests join ("stretch") the latest batch.
  bool stretch = false;
  // A batch older than this accepts no more requests (the paper's T_comp_wait). 0: if costs are
  // known, new requests join unless the sum of policy II is smaller when they follow. They never
  // join if, by the costs, an earlier query would then miss its objective, or a deadline that it
  // meets without them.
  Duration join_window{0};
  // 1: batches run one after the other; 2 and more: as a pipeline with one batch per worker at a
  // stage.
  int buffer_pairs = 2;
};

// InvalidArgument if an option is out of range.
StatusOr<std::unique_ptr<Scheduler>> MakeStagedScheduler(const PolicyOptions& options,
                                                         const StagedOptions& staged);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_STAGED_H_
