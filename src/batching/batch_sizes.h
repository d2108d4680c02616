// Chooses the batch sizes of a cell type from the costs of its batches.
#ifndef CHAIRLIFT_BATCHING_BATCH_SIZES_H_
#define CHAIRLIFT_BATCHING_BATCH_SIZES_H_

#include "batching/policy.h"

namespace chairlift {

struct BatchSizes {
  // A worker that has other work should wait for at least this many rows: fewer cost the same.
  int min = 1;
  // More rows than this hardly improve throughput and only take longer.
  int max = 1;
  // More rows than this do not improve throughput at all. A task may have up to this many if
  // that many wait and each would wait as long anyway.
  int most = 1;
  friend bool operator==(const BatchSizes&, const BatchSizes&) = default;
};

// `max`: the smallest size, among the powers of two below `limit` and `limit` itself, whose rows
// per second are within 5% of the best. `most`: the same within 1%, but at most twice `max`. `min`:
// the largest size up to `max` that costs at most 10% more than one row; so no row is held back if
// time grows with rows. `overhead` is what every task takes in addition to its cost.
BatchSizes ChooseBatchSizes(const CostModel& costs, CellType type, int limit,
                            Duration overhead = Duration(0));

// The sizes of a type according to a policy's options: what cell_types sets, else what the costs
// suggest, else 1 to max_batch_size.
BatchSizes SizesOf(const PolicyOptions& options, CellType type);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_BATCH_SIZES_H_
