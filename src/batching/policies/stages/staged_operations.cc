// The operations on staged queries that a user's policy may call (chairlift/stage_policy.h).
#include <algorithm>
#include <utility>
#include <vector>

#include "batching/policies/stages/staged_scheduler.h"

namespace chairlift {
namespace {

// The shortest time after which a user's policy is called again, if nothing else happens.
constexpr Duration kSoonestWake = std::chrono::microseconds(10);

}  // namespace

// The operations and the view that a user's policy gets of one pipeline.
class StagedScheduler::Operations final : public MetaOperations {
 public:
  // For a decision about waiting queries; or about a batch that has run `stage` stages.
  Operations(StagedScheduler& scheduler, Pipeline& pipeline, std::optional<int32_t> pair)
      : scheduler_(scheduler), pipeline_(pipeline), pair_(pair) {
    pipeline_.wake_at.reset();
    FindLatest();
  }
  Operations(StagedScheduler& scheduler, Pipeline& pipeline, StagedBatchId batch, int32_t stage)
      : scheduler_(scheduler), pipeline_(pipeline), batch_(batch), stage_(stage) {}

  void Decide() {
    std::vector<int32_t> rows;
    StageBatch about{.stage = stage_ + 1, .stages = pipeline_.table.stages(), .rows = {}};
    if (stage_ < 0) {
      int32_t sum = 0;
      for (const Slot slot : pipeline_.queue) {
        sum += scheduler_.RowsOf(slot);
        if (!rows.empty() && sum > max_batch_size()) break;
        rows.push_back(scheduler_.RowsOf(slot));
      }
      about.age = scheduler_.now() - scheduler_.request(pipeline_.queue.front()).arrived;
    } else {
      rows = RowsOf(batch_);
      about.age = scheduler_.now() - pipeline_.table.row(batch_).created;
    }
    about.rows = rows;
    scheduler_.options_.stage_policy->Schedule(about, *this);
  }
  bool split() const { return split_; }

  bool New(int queries) override {
    if (!pair_ || !Fits(queries, max_batch_size(), /*alone=*/true)) return false;
    scheduler_.MakeNew(pipeline_, *pair_, Take(queries, /*starts=*/true), /*starts=*/true);
    pair_.reset();
    FindLatest();
    return true;
  }
  bool Stretch(int queries) override {
    if (!has_latest_ || !Fits(queries, room_, /*alone=*/false)) return false;
    scheduler_.MakeStretched(pipeline_, *pipeline_.table.latest(), Take(queries, /*starts=*/false));
    FindLatest();
    return true;
  }
  bool Split(std::span<const int> sizes) override {
    if (stage_ < 0 || split_ || sizes.empty()) return false;
    int64_t sum = 0;
    for (const int size : sizes) {
      if (size < 1) return false;
      sum += size;
    }
    if (sum != pipeline_.table.row(batch_).size) return false;
    scheduler_.Divide(pipeline_, stage_, batch_, sizes);
    split_ = true;
    return true;
  }
  void WakeAfter(std::chrono::nanoseconds delay) override {
    constexpr Duration kLatest = std::chrono::hours(1);
    if (stage_ >= 0) return;
    pipeline_.wake_at = scheduler_.now() + std::clamp<Duration>(delay, kSoonestWake, kLatest);
  }

  const StageBatch* latest() const override { return has_latest_ ? &latest_ : nullptr; }
  int max_batch_size() const override { return scheduler_.options_.max_batch_size; }
  std::chrono::nanoseconds Cost(int stage, int rows) const override {
    if (stage < 0 || stage >= pipeline_.table.stages() || rows < 1) return {};
    return scheduler_.CostOf(pipeline_, stage, {rows, 0});
  }

 private:
  std::vector<int32_t> RowsOf(StagedBatchId id) const {
    std::vector<int32_t> rows;
    for (const Slot slot : pipeline_.batches.at(id).queries) {
      rows.push_back(slot == kNoSlot ? 0 : scheduler_.RowsOf(slot));
    }
    return rows;
  }

  void FindLatest() {
    const std::optional<StagedBatchId> id = pipeline_.table.latest();
    has_latest_ = id && pipeline_.table.MayStretch(*id);
    if (!has_latest_) return;
    latest_rows_ = RowsOf(*id);
    const BatchTable::Row& row = pipeline_.table.row(*id);
    latest_ = {
        .stage = row.completed[static_cast<size_t>(row.front)] > 0 ? row.front + 1 : row.front,
        .stages = pipeline_.table.stages(),
        .rows = latest_rows_,
        .age = scheduler_.now() - row.created};
    room_ = max_batch_size() - scheduler_.LoadOf(pipeline_.batches.at(*id), 0, row.size).rows;
  }

  bool Fits(int queries, int32_t rows, bool alone) const {
    if (stage_ >= 0 || queries < 1 || static_cast<size_t>(queries) > pipeline_.queue.size()) {
      return false;
    }
    auto slot = pipeline_.queue.begin();
    int64_t sum = 0;
    for (int i = 0; i < queries; ++i, ++slot) sum += scheduler_.RowsOf(*slot);
    return sum <= rows || (alone && queries == 1);
  }
  std::vector<Slot> Take(int queries, bool starts) {
    std::vector<Slot> slots;
    slots.reserve(static_cast<size_t>(queries));
    for (int i = 0; i < queries; ++i) slots.push_back(scheduler_.TakeFirst(pipeline_, starts));
    return slots;
  }

  StagedScheduler& scheduler_;
  Pipeline& pipeline_;
  std::optional<int32_t> pair_;  // that a new batch may start with
  StagedBatchId batch_ = -1;
  int32_t stage_ = -1;  // the stage that the batch has run; −1: for waiting queries
  bool split_ = false;
  bool has_latest_ = false;
  StageBatch latest_;
  std::vector<int32_t> latest_rows_;
  int32_t room_ = 0;
};

void StagedScheduler::AskAboutWaiting(Pipeline& pipeline, bool may_begin) {
  Operations(*this, pipeline, may_begin ? pipeline.buffers.Legitimate() : std::nullopt).Decide();
}

bool StagedScheduler::AskAboutSplit(Pipeline& pipeline, int32_t stage, StagedBatchId id) {
  const std::vector<Slot>& queries = pipeline.batches.at(id).queries;
  if (std::all_of(queries.begin(), queries.end(), [](Slot slot) { return slot == kNoSlot; })) {
    return false;
  }
  Operations operations(*this, pipeline, id, stage);
  operations.Decide();
  return operations.split();
}

}  // namespace chairlift
