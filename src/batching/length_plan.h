// Chooses which requests of varying length share a padded batch (TurboTransformers §5, Algorithm
// 2).
#ifndef CHAIRLIFT_BATCHING_LENGTH_PLAN_H_
#define CHAIRLIFT_BATCHING_LENGTH_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"

namespace chairlift {

struct LengthItem {
  int32_t length;
  int32_t rows;  // from 1 up
};

struct LengthPlan {
  struct Batch {
    int32_t begin;  // items [begin, end)
    int32_t end;
    double cost;
  };
  std::vector<Batch> batches;  // in order of length; every item is in exactly one
};

// The cheapest plan with batches of up to `max_rows` rows; an item with more rows is a batch by
// itself. `items` must be sorted by length, shortest first. cost_of(length)[rows - 1] is the cost
// of a whole batch of `rows` rows padded to `length`, for up to `max_rows`; larger items cost in
// proportion. O(items × max_rows), and `items` calls of cost_of; each span is used until the next
// call.
//
// Corrects Algorithm 2: as printed, it drops the request before each batch when it walks back, and
// its costs are per request instead of per batch.
LengthPlan PlanLengths(std::span<const LengthItem> items, int max_rows,
                       absl::FunctionRef<std::span<const double>(int32_t length)> cost_of);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_LENGTH_PLAN_H_
