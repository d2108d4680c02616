// Multi-entry multi-exit batching (DVABatch §5–7) of models cut into stages: requests are chains of
// one node a stage, all of the same rows. They may grow from stage to stage
// (PolicyOptions::stage_types): who does not has left early, and who grows by a later stage skips
// those between.
//
// Requests of equal types at every stage make batches of up to max_batch_size rows, of two
// meta-operations besides the new batch. **stretch**: while the latest batch is under way,
// newcomers may join it, catch up, and be merged with it. **split**: after a stage, a batch goes on
// as several. Each query passes each stage once. Stages nearest to the end go first. A worker has
// one task at a time, as what a batch does next is decided when a stage has run.
//
// Queries that leave early, are cancelled or expire do so before their next stage; their places in
// the batch stay empty, and cost nothing. Those that skip stages are split off, and enter the later
// one at once.
#ifndef CHAIRLIFT_BATCHING_POLICIES_STAGED_H_
#define CHAIRLIFT_BATCHING_POLICIES_STAGED_H_

#include <memory>

#include "batching/policy.h"

namespace chairlift {

// Where PolicyOptions::stage_policy is set, its conditions replace all of these, but for the buffer
// pairs.
struct StagedOptions {
  // Policy I, input diversity: requests share a batch if their lengths fall into one bucket
  // (PolicyOptions::bucket_width). Batches of several buckets run at once, of max_batch_size rows
  // together. Where queue_delay is 0, what the first stage takes at max_batch_size is the delay.
  bool by_length = false;
  // Policy II, operator diversity: a new batch has as many of the queries that wait as suit what
  // stages cost, and after a stage it is divided into parts that suit those which remain. Of all
  // that wait, of half of them, a quarter and so on down to one, that number is taken of which the
  // sum of latencies is least, together with what their work is to those who come later: in
  // proportion to how busy the arrivals of late keep the workers, so that work is saved where it is
  // short. Needs costs. (The document's rule divides where the parts take no longer than the whole,
  // whatever the load.) Ours beside it: a batch that is not split runs a stage in pieces where that
  // takes no longer; these go on apart, and meet before the first stage that suits more of them.
  bool split = false;
  // Policy III, load diversity: newcomers stretch the latest batch,
  bool stretch = false;
  // unless that was made longer ago than this (the document's T_comp_wait; 0: where costs are
  // known, unless by the same sum they had better follow it), or, by the costs, an earlier query
  // would then miss its objective or its deadline that it keeps without them.
  Duration longest_wait{0};
  // 1: batches run one after the other; 2 and more: as a pipeline, of one batch a worker at a
  // stage.
  int buffer_pairs = 2;
};

// InvalidArgument where an option is out of range.
StatusOr<std::unique_ptr<Scheduler>> MakeStagedScheduler(const PolicyOptions& options,
                                                         const StagedOptions& staged);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_STAGED_H_
