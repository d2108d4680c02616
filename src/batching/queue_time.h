// How long the requests of one model will keep a machine busy: the queue, in time.
//
// Work is counted in units of a cell type: rows, or rows times length where batches are padded.
// What a unit costs is learnt from the tasks that ran, the recent ones weighing most and large ones
// more than small ones: what waits long runs in large batches. Where requests grow while they run
// (a decoder's steps), a new one is expected to grow as earlier ones did on average.
#ifndef CHAIRLIFT_BATCHING_QUEUE_TIME_H_
#define CHAIRLIFT_BATCHING_QUEUE_TIME_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/clock.h"
#include "batching/cell_graph.h"

namespace chairlift {

// Not thread-safe: for one that schedules, under the lock under which it schedules.
class QueueTime {
 public:
  struct Work {
    CellType type = 0;
    int64_t units = 0;
  };
  // What is left of one request; kept by the caller from Arrive() to Leave().
  class Share {
   private:
    friend class QueueTime;
    struct Part {
      CellType type = 0;
      int64_t known = 0;     // units that are there and have not run
      int64_t grown = 0;     // units that came by Grow()
      int64_t expected = 0;  // of those

      int64_t left() const { return known + (expected > grown ? expected - grown : 0); }
    };
    absl::InlinedVector<Part, 2> parts_;
  };

  // A task of so many units of a type kept one worker busy for `cost`.
  void Learn(CellType type, int64_t units, Duration cost);
  // What a unit of a type costs as far as tables know, until Learn() knows better; where it does
  // already, nothing happens.
  void Expect(CellType type, double ns_per_unit);

  // Whether Learn() knows it.
  bool Knows(CellType type) const { return type < types_.size() && types_[type].learnt; }

  // A request that brings this work; types may come several times. `share` must be empty.
  void Arrive(std::span<const Work> work, Share& share);
  // It grew: that much was not in what it brought.
  void Grow(Work work, Share& share);
  // A part of it ran.
  void Ran(Work work, Share& share);
  // It left; `complete`: after its last node, so that its growth counts for others'.
  void Leave(bool complete, Share& share);

  // The work of all requests that have not left, by one worker. Types of which nothing is known
  // count nothing.
  Duration work() const { return Duration(total_ns_); }

 private:
  struct Type {
    double cost_ns = 0;  // of recent tasks together
    double units = 0;
    bool learnt = false;     // from a task, not a table
    int64_t left = 0;        // units of all shares
    int64_t charged_ns = 0;  // what they add to total_ns_
    double mean_growth = 0;  // units a request
    bool grows = false;      // it is in growing_
  };

  Type& TypeOf(CellType type);
  static Share::Part& PartOf(Share& share, CellType type);
  // Has what is left of the part become `part`.
  void Set(Share::Part& part, const Share::Part& to);
  void Charge(Type& type);

  std::vector<Type> types_;
  std::vector<CellType> growing_;  // types that some request has grown by
  int64_t total_ns_ = 0;
};

// How long a request of model `own` waits at most for its turn, by what `work` the models have, on
// so many workers that serve the models in turns: another model gets no more of them than this one
// before this one's queue is through.
Duration ExpectedWait(std::span<const Duration> work, size_t own, int workers);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_QUEUE_TIME_H_
