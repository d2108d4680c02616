// Costs of a model's requests by their size, for requests whose graph is not known yet.
//
// The model: a request of n bytes costs n times the mean cost of a byte of recent requests of about
// its size. Sizes are grouped by powers of two. Requests that ran in large batches weigh more,
// because a long queue runs in large batches.
//
// A group without requests is estimated from its neighbours. A request is assumed to cost at most
// as much as one of the next larger known group. It is also assumed to cost at most as much for
// each byte as the next smaller known group.
#ifndef CHAIRLIFT_BATCHING_SIZE_COSTS_H_
#define CHAIRLIFT_BATCHING_SIZE_COSTS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace chairlift {

// Not thread-safe. Sizes below 1 count as 1.
class SizeCosts {
 public:
  // A request of that size took one worker `cost` in all, and ran with `batched` requests at a
  // time, itself included.
  void Learn(int64_t bytes, Duration cost, int batched);
  // Like Learn(), for a request that several workers computed: it took at most `cost`. Ignored once
  // Learn() knows its group.
  void LearnMost(int64_t bytes, Duration cost);
  // A request had taken `cost` when it was stopped.
  void LearnLeast(int64_t bytes, Duration cost);

  struct Prediction {
    Duration cost{0};       // at most an hour; 0: unknown
    bool measured = false;  // from requests of about that size
  };
  Prediction Predict(int64_t bytes) const;

 private:
  static constexpr size_t kGroups = 48;

  struct Group {
    double cost_ns = 0;
    double bytes = 0;   // 0: unknown
    double number = 0;  // of requests, weighted as the sums above
    bool most = false;  // from LearnMost()
  };

  static size_t GroupOf(int64_t bytes);

  std::array<Group, kGroups> groups_ = {};
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_SIZE_COSTS_H_
