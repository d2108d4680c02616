// Ongoing batches of staged queries and the queues between stages (DVABatch §5.2): the
// meta-operations new, stretch and split as a pure state machine. It knows queries by their place
// in a batch; who they are is its user's.
#ifndef CHAIRLIFT_BATCHING_POLICIES_STAGES_BATCH_TABLE_H_
#define CHAIRLIFT_BATCHING_POLICIES_STAGES_BATCH_TABLE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"

namespace chairlift {

using StagedBatchId = int64_t;

// Queries [start, start + num) of a batch: an item of a batch queue.
struct BatchPart {
  StagedBatchId batch = 0;
  int32_t start = 0;
  int32_t num = 0;
  friend bool operator==(const BatchPart&, const BatchPart&) = default;
};

// Stages are numbered from 0. Each query of a batch passes each stage exactly once. For every part
// that a stage has run: Update(), then any of Stretch() and Split(), then Forward() unless it was
// split.
class BatchTable {
 public:
  struct Row {
    int32_t size = 0;  // queries
    TimePoint created{};
    std::vector<int32_t> completed;  // queries, by stage: the statusmap
    int32_t front = 0;               // the stage that its first query is at, or has last ended
    // Having run this stage, queries wait until all of the batch have. −1: none waits.
    int32_t joins_after = -1;
    bool may_stretch = true;
    bool split_off = false;
  };

  explicit BatchTable(int32_t stages) : queues_(static_cast<size_t>(stages)) {}

  // A batch of `num` ≥ 1 queries enters stage 0. A batch that is known to be split later is not to
  // be stretched: `may_stretch` false, which parts inherit.
  StagedBatchId New(int32_t num, TimePoint now, bool may_stretch = true);

  // Whether Stretch() may be called: it is the latest batch, no split is ahead of it, and its first
  // query has another stage before it.
  bool MayStretch(StagedBatchId batch) const;
  // `num` ≥ 1 queries join the end of the batch: they enter stage 0, and are merged with the others
  // after the stage at which these are now.
  void Stretch(StagedBatchId batch, int32_t num);
  // From now on a split is ahead of it.
  void ForbidStretch(StagedBatchId batch) { rows_.at(batch).may_stretch = false; }

  // What the stage would run next; null: nothing waits there.
  const BatchPart* Front(int32_t stage) const;
  // Takes that.
  BatchPart Take(int32_t stage);
  // Takes the first 1 ≤ `num` < all of its queries; the rest stays. All of the batch then wait for
  // each other after the stage `meet_after` ≥ `stage`, if they do not so already.
  BatchPart TakePiece(int32_t stage, int32_t num, int32_t meet_after);

  // The stage has run the part.
  void Update(int32_t stage, const BatchPart& part);
  // All of the batch have run this stage, and nobody is beyond it.
  bool CaughtUp(int32_t stage, StagedBatchId batch) const;
  // Sends the part to the next stage: the merged batch if it waited for others that have caught up,
  // nothing if it is to wait. A batch that has passed the last stage leaves the table.
  void Forward(int32_t stage, const BatchPart& part);
  // Replaces a batch that has caught up at `stage` by several of these sizes, ≥ 1 and together its
  // own, each of which enters the next stage by itself. Returns their ids.
  std::vector<StagedBatchId> Split(int32_t stage, StagedBatchId batch,
                                   std::span<const int32_t> sizes);

  // Queries that leave a batch for a later stage make one of their own there, which is never
  // stretched. Their places in the old one stay, empty: for its user to know.
  StagedBatchId SplitOff(int32_t num, int32_t stage, TimePoint created);

  int32_t stages() const { return static_cast<int32_t>(queues_.size()); }
  bool empty() const { return rows_.empty(); }
  const std::map<StagedBatchId, Row>& rows() const { return rows_; }
  const Row& row(StagedBatchId batch) const { return rows_.at(batch); }
  // But for those that were split off.
  std::optional<StagedBatchId> latest() const;

 private:
  std::map<StagedBatchId, Row> rows_;  // in order of creation
  std::vector<std::deque<BatchPart>> queues_;
  StagedBatchId next_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_STAGES_BATCH_TABLE_H_
