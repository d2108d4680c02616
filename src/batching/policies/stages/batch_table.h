// Running batches of staged queries and the queues between stages (DVABatch §5.2): the
// meta-operations new, stretch and split as a pure state machine. It identifies queries by their
// place in a batch; its user knows which request has which place.
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

// Queries [start, start + num) of a batch: an item of a stage queue.
struct BatchPart {
  StagedBatchId batch = 0;
  int32_t start = 0;
  int32_t num = 0;
  friend bool operator==(const BatchPart&, const BatchPart&) = default;
};

// Stages are numbered from 0. Each query of a batch passes each stage exactly once. For every part
// that a stage has run, call Update(), then any of Stretch() and Split(), then Forward() unless it
// was split.
class BatchTable {
 public:
  struct Row {
    int32_t size = 0;  // queries
    TimePoint created{};
    std::vector<int32_t> completed;  // queries that completed each stage: the statusmap
    int32_t front = 0;               // the stage that its first query is in, or has last completed
    // Queries that have run this stage wait until the whole batch has. −1: no query waits.
    int32_t joins_after = -1;
    bool may_stretch = true;
    bool split_off = false;
  };

  explicit BatchTable(int32_t stages) : queues_(static_cast<size_t>(stages)) {}

  // A batch of `num` ≥ 1 queries enters stage 0. `may_stretch` is false for a batch that will
  // certainly be split later; parts inherit it.
  StagedBatchId New(int32_t num, TimePoint now, bool may_stretch = true);

  // Whether Stretch() may be called: it is the latest batch, no split is ahead, and its first query
  // has another stage to run.
  bool MayStretch(StagedBatchId batch) const;
  // `num` ≥ 1 queries join the end of the batch: they enter stage 0, and are merged with the others
  // after the stage that those are in now.
  void Stretch(StagedBatchId batch, int32_t num);
  // Call it when a split is ahead of the batch.
  void ForbidStretch(StagedBatchId batch) { rows_.at(batch).may_stretch = false; }

  // The next part that the stage would run; null if none waits.
  const BatchPart* Front(int32_t stage) const;
  // Removes that part and returns it.
  BatchPart Take(int32_t stage);
  // Takes the first `num` of its queries, 1 ≤ `num` < all; the rest stays. The queries of the batch
  // then meet after stage `meet_after` ≥ `stage`, unless a meeting is already set.
  BatchPart TakePiece(int32_t stage, int32_t num, int32_t meet_after);

  // The stage has run this part.
  void Update(int32_t stage, const BatchPart& part);
  // Whether all of the batch have run this stage and none is beyond it.
  bool CaughtUp(int32_t stage, StagedBatchId batch) const;
  // Sends the part to the next stage. If it waited for others that have caught up, sends the merged
  // batch; if it must wait, sends nothing. A batch that has passed the last stage is removed.
  void Forward(int32_t stage, const BatchPart& part);
  // Replaces a batch that has caught up at `stage` by several batches, each of which enters the
  // next stage by itself. Each size must be ≥ 1 and their sum the batch's size. Returns the new
  // ids.
  std::vector<StagedBatchId> Split(int32_t stage, StagedBatchId batch,
                                   std::span<const int32_t> sizes);

  // Makes a batch of queries that leave their batch for a later stage. It is never stretched. Their
  // places in the old batch stay empty; the user must keep track of that.
  StagedBatchId SplitOff(int32_t num, int32_t stage, TimePoint created);

  int32_t stages() const { return static_cast<int32_t>(queues_.size()); }
  bool empty() const { return rows_.empty(); }
  const std::map<StagedBatchId, Row>& rows() const { return rows_; }
  const Row& row(StagedBatchId batch) const { return rows_.at(batch); }
  // The latest batch that was not made by SplitOff().
  std::optional<StagedBatchId> latest() const;

 private:
  std::map<StagedBatchId, Row> rows_;  // in order of creation
  std::vector<std::deque<BatchPart>> queues_;
  StagedBatchId next_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_STAGES_BATCH_TABLE_H_
