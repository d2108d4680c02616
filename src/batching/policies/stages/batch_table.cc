#include "batching/policies/stages/batch_table.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

namespace chairlift {

StagedBatchId BatchTable::New(int32_t num, TimePoint now, bool may_stretch) {
  assert(num > 0);
  const StagedBatchId id = next_++;
  Row& row = rows_[id];
  row.size = num;
  row.created = now;
  row.completed.resize(queues_.size());
  row.may_stretch = may_stretch;
  queues_[0].push_back({id, 0, num});
  return id;
}

std::optional<StagedBatchId> BatchTable::latest() const {
  const auto last = std::find_if(rows_.rbegin(), rows_.rend(),
                                 [](const auto& row) { return !row.second.split_off; });
  if (last == rows_.rend()) return std::nullopt;
  return last->first;
}

bool BatchTable::MayStretch(StagedBatchId batch) const {
  const auto found = rows_.find(batch);
  return found != rows_.end() && latest() == batch && found->second.may_stretch &&
         found->second.front + 1 < stages();
}

void BatchTable::Stretch(StagedBatchId batch, int32_t num) {
  assert(num > 0 && MayStretch(batch));
  Row& row = rows_.at(batch);
  if (row.joins_after < 0) row.joins_after = row.front;
  queues_[0].push_back({batch, row.size, num});
  row.size += num;
}

const BatchPart* BatchTable::Front(int32_t stage) const {
  const std::deque<BatchPart>& queue = queues_[static_cast<size_t>(stage)];
  return queue.empty() ? nullptr : &queue.front();
}

BatchPart BatchTable::Take(int32_t stage) {
  std::deque<BatchPart>& queue = queues_[static_cast<size_t>(stage)];
  assert(!queue.empty());
  const BatchPart part = queue.front();
  queue.pop_front();
  return part;
}

BatchPart BatchTable::TakePiece(int32_t stage, int32_t num, int32_t meet_after) {
  BatchPart& front = queues_[static_cast<size_t>(stage)].front();
  assert(num > 0 && num < front.num && meet_after >= stage);
  Row& row = rows_.at(front.batch);
  if (row.joins_after < 0) row.joins_after = meet_after;
  const BatchPart piece{front.batch, front.start, num};
  front.start += num;
  front.num -= num;
  return piece;
}

void BatchTable::Update(int32_t stage, const BatchPart& part) {
  Row& row = rows_.at(part.batch);
  int32_t& completed = row.completed[static_cast<size_t>(stage)];
  completed += part.num;
  assert(completed <= row.size);
}

bool BatchTable::CaughtUp(int32_t stage, StagedBatchId batch) const {
  const Row& row = rows_.at(batch);
  // Some queries may be beyond it.
  const bool apart = row.joins_after >= 0 && row.joins_after != stage;
  return !apart && row.front == stage && row.completed[static_cast<size_t>(stage)] == row.size;
}

void BatchTable::Forward(int32_t stage, const BatchPart& part) {
  const auto found = rows_.find(part.batch);
  Row& row = found->second;
  BatchPart next = part;
  if (row.joins_after == stage) {
    if (!CaughtUp(stage, part.batch)) return;
    row.joins_after = -1;
    next = {part.batch, 0, row.size};
  }
  if (stage + 1 == stages()) {
    assert(CaughtUp(stage, part.batch));
    rows_.erase(found);
    return;
  }
  if (next.start == 0) row.front = stage + 1;
  queues_[static_cast<size_t>(stage) + 1].push_back(next);
}

std::vector<StagedBatchId> BatchTable::Split(int32_t stage, StagedBatchId batch,
                                             std::span<const int32_t> sizes) {
  assert(stage + 1 < stages() && CaughtUp(stage, batch));
  assert(std::accumulate(sizes.begin(), sizes.end(), 0) == row(batch).size);
  const Row whole = std::move(rows_.at(batch));
  rows_.erase(batch);
  std::vector<StagedBatchId> parts;
  for (const int32_t size : sizes) {
    assert(size > 0);
    const StagedBatchId id = next_++;
    Row& row = rows_[id];
    row.size = size;
    row.created = whole.created;
    row.completed.resize(queues_.size());
    for (int32_t s = 0; s <= stage; ++s) row.completed[static_cast<size_t>(s)] = size;
    row.front = stage + 1;
    row.may_stretch = false;
    queues_[static_cast<size_t>(stage) + 1].push_back({id, 0, size});
    parts.push_back(id);
  }
  return parts;
}

StagedBatchId BatchTable::SplitOff(int32_t num, int32_t stage, TimePoint created) {
  assert(num > 0 && stage < stages());
  const StagedBatchId id = next_++;
  Row& row = rows_[id];
  row.size = num;
  row.created = created;
  row.completed.resize(queues_.size());
  for (int32_t s = 0; s < stage; ++s) row.completed[static_cast<size_t>(s)] = num;
  row.front = stage;
  row.may_stretch = false;
  row.split_off = true;
  queues_[static_cast<size_t>(stage)].push_back({id, 0, num});
  return id;
}

}  // namespace chairlift
