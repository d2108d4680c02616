// How long a model's requests will keep a machine busy: the queue, as a time.
//
// Work is counted in units of a cell type: rows, or rows times length if batches are padded. A
// unit's cost is learnt from completed tasks. Recent tasks weigh most, and large ones more than
// small ones, because a long queue runs in large batches. If requests grow while they run (a
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

// Not thread-safe: protected by the scheduler's lock.
class QueueTime {
 public:
  struct Work {
    CellType type = 0;
    int64_t units = 0;
  };
  // The remaining work of one request; kept by the caller from Arrive() to Leave().
  class Share {
   private:
    friend class QueueTime;
    struct Part {
      CellType type = 0;
      int64_t known = 0;     // units that have arrived and not run
      int64_t grown = 0;     // units that were added by Grow()
      int64_t expected = 0;  // units that Grow() is expected to add
      int64_t guess_ns = 0;  // estimate for the remaining units, while the cost is unknown

      int64_t left() const { return known + (expected > grown ? expected - grown : 0); }
    };
    absl::InlinedVector<Part, 2> parts_;
  };

  // Learns that a task of `units` units of this type took one worker `cost`.
  void Learn(CellType type, int64_t units, Duration cost);
  // A unit's cost from a cost table. Used until the first Learn() for the type, ignored after it.
  void Expect(CellType type, double ns_per_unit);

  // Whether a unit's cost is known.
  bool Prices(CellType type) const { return type < types_.size() && types_[type].units > 0; }
  // Whether Learn() has been called for the type.
  bool Knows(CellType type) const { return type < types_.size() && types_[type].learnt; }

  // Call it if the units of the type get another meaning: their cost is unknown again.
  void Forget(CellType type);

  // Adds a request with this work; a type may occur several times. `share` must be empty. `whole`:
  // the expected cost of the whole request. What this leaves after the types of known cost is
  // charged to the units of unknown cost.
  void Arrive(std::span<const Work> work, Share& share, Duration whole = Duration(0));
  // The request grew by `work`, which was not in Arrive().
  void Grow(Work work, Share& share);
  // Part of the request has run.
  void Ran(Work work, Share& share);
  // The request has left. `complete`: after its last node, so that its growth counts in the mean.
  void Leave(bool complete, Share& share);

  // One worker's time for all requests that have not left. Units of unknown cost count as guessed.
  Duration work() const { return Duration(total_ns_); }
  // The remaining work of one request.
  Duration work(const Share& share) const;

 private:
  struct Type {
    double cost_ns = 0;  // sum over recent tasks
    double units = 0;
    bool learnt = false;     // from a task rather than a table
    int64_t left = 0;        // units over all shares
    int64_t charged_ns = 0;  // their part of total_ns_
    int64_t guess_ns = 0;    // the estimated part of total_ns_; 0 once the cost is known
    double mean_growth = 0;  // units per request
    bool grows = false;      // it is in growing_
  };

  Type& TypeOf(CellType type);
  static Share::Part& PartOf(Share& share, CellType type);
  // Replaces a part and updates the totals.
  void Set(Share::Part& part, const Share::Part& to);
  void Charge(Type& type);
  // The cost of the type is known from now on: replaces the estimates in the totals.
  void DropGuesses(Type& type);

  std::vector<Type> types_;
  std::vector<CellType> growing_;  // types by which any request has grown
  int64_t total_ns_ = 0;
};

// How much longer than expected requests wait, because other processes use the machine, or for
// other reasons that costs do not include. Not thread-safe.
class WaitStretch {
 public:
  // A request waited `waited`; its expected wait was `expected`.
  void Learn(Duration expected, Duration waited);
  // The factor for expected waits, from 1 to kMost: few requests then wait longer than expected.
  double factor() const { return factor_; }

  static constexpr double kMost = 2;

 private:
  double factor_ = 1;
};

// How long a model's batches take: somewhat above the mean of recent ones. Not thread-safe.
class BatchTime {
 public:
  void Learn(Duration taken);
  Duration time() const { return Duration(static_cast<int64_t>(ns_)); }

 private:
  double ns_ = 0;
};

// The expected time until a request's answer, which is compared with the bound `limit`. It is the
// `wait` in the queue, times `stretch`, and the time of its own batch. A slow batch counts at most
// half of the limit. Otherwise a model whose batches take longer than the limit would have no queue
// at all.
Duration ExpectedAnswer(Duration wait, double stretch, Duration own_batch, Duration limit);

// Upper bound of the wait of a new request of model `own`, from each model's `work`. The workers
// serve the models in turns. So before this model's queue is done, no other model gets more of them
// than this one.
Duration ExpectedWait(std::span<const Duration> work, size_t own, int workers);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_QUEUE_TIME_H_
