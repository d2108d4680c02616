// The batch sizes that suit a cell type, from what its batches cost.
#ifndef CHAIRLIFT_BATCHING_BATCH_SIZES_H_
#define CHAIRLIFT_BATCHING_BATCH_SIZES_H_

#include "batching/policy.h"

namespace chairlift {

struct BatchSizes {
  // With fewer rows than this a worker that has work should rather wait for more: they cost the
  // same.
  int min = 1;
  // More rows than this hardly make the machine faster; they only take longer.
  int max = 1;
  // And more than this do not at all. Where so much waits that each would wait as long in any case,
  // a task may have so many.
  int most = 1;
  friend bool operator==(const BatchSizes&, const BatchSizes&) = default;
};

// `max`: the smallest size, among the powers of two below `limit` and `limit` itself, whose
// rows a second are within 5% of the best of them; `most`: within 1%, but twice `max` at most.
// `min`: the largest size up to `max` that costs at most 10% more than one row; as latency asks, no
// row is held back where time grows with rows. `overhead` is what every task takes besides its
// cost.
BatchSizes ChooseBatchSizes(const CostModel& costs, CellType type, int limit,
                            Duration overhead = Duration(0));

// Those of a type as a policy's options give them: what cell_types sets, else what suits the costs,
// else from 1 to max_batch_size.
BatchSizes SizesOf(const PolicyOptions& options, CellType type);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_BATCH_SIZES_H_
