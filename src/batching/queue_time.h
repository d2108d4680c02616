// How long the requests of one model will keep a machine busy: the queue, in time.
//
// Work is counted in units of a cell type: rows, or rows times length where batches are padded.
// A unit's cost is learnt from the tasks that ran: recent ones weigh most, and large ones more than
// small ones, for a long queue runs in large batches. Where requests grow while they run (a
// decoder's steps), a new one is expected to grow by the mean of earlier ones.
#ifndef CHAIRLIFT_BATCHING_QUEUE_TIME_H_
#define CHAIRLIFT_BATCHING_QUEUE_TIME_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/clock.h"
#include "batching/cell_graph.h"

namespace chairlift {

// Not thread-safe: it belongs under the scheduler's lock.
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
      int64_t known = 0;     // units that have arrived and not run
      int64_t grown = 0;     // units that came by Grow()
      int64_t expected = 0;  // units that Grow() is expected to bring

      int64_t left() const { return known + (expected > grown ? expected - grown : 0); }
    };
    absl::InlinedVector<Part, 2> parts_;
  };

  // A task of `units` of this type took one worker `cost`.
  void Learn(CellType type, int64_t units, Duration cost);
  // A unit's cost from a cost table, used until Learn() is called for the type; ignored after that.
  void Expect(CellType type, double ns_per_unit);

  // Whether Learn() has been called for the type.
  bool Knows(CellType type) const { return type < types_.size() && types_[type].learnt; }

  // A request that brings this work; types may come several times. `share` must be empty.
  void Arrive(std::span<const Work> work, Share& share);
  // The request grew by `work`, which was not in Arrive().
  void Grow(Work work, Share& share);
  // A part of the request ran.
  void Ran(Work work, Share& share);
  // The request left; `complete`: after its last node, so that its growth counts in the mean.
  void Leave(bool complete, Share& share);

  // Time of one worker for all requests that have not left. Types of unknown cost count nothing.
  Duration work() const { return Duration(total_ns_); }
  // What is left of one request.
  Duration work(const Share& share) const;
  // What a request brings of late, rather less than the average; 0: not known yet.
  Duration typical() const { return Duration(static_cast<int64_t>(typical_ns_)); }

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
  // Replaces a part, and updates the totals.
  void Set(Share::Part& part, const Share::Part& to);
  void Charge(Type& type);

  std::vector<Type> types_;
  std::vector<CellType> growing_;  // types that some request has grown by
  int64_t total_ns_ = 0;
  double typical_ns_ = 0;
};

// Upper bound of the wait of a new request of model `own`, from each model's `work`, on `workers`
// that serve the models in turns: before this model's queue is done, another model gets no more of
// the workers than this one.
Duration ExpectedWait(std::span<const Duration> work, size_t own, int workers);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_QUEUE_TIME_H_
