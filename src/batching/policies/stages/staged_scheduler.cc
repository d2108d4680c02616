#include "batching/policies/stages/staged_scheduler.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace chairlift {
namespace {

// The arrival rate is averaged over about this many of the latest queries.
constexpr double kRateOver = 32;

}  // namespace

void StagedScheduler::Arrived(Slot slot, const CellGraph& graph) {
  Kind kind;
  if (!options_.stage_types.empty() && graph.type(0) == options_.stage_types[0]) {
    kind.types = options_.stage_types;
  } else {
    for (int32_t i = 0; i < graph.num_runs(); ++i) {
      const CellGraph::Run run = graph.run(i);
      kind.types.insert(kind.types.end(), static_cast<size_t>(run.count), run.type);
    }
  }
  assert(request(slot).roots.size() == 1);
  if (staged_.by_length)
    kind.bucket = (graph.length() + options_.bucket_width - 1) / options_.bucket_width;
  // With one pair, batches run one after the other.
  const int32_t at_once = staged_.buffer_pairs == 1 ? 1 : std::max(options_.workers, 1);
  const int32_t pairs = std::max(staged_.buffer_pairs, at_once);
  Pipeline& pipeline = pipelines_.try_emplace(kind, kind, pairs, at_once).first->second;
  ++pipeline.requests;
  if (arrived_) {
    const auto gap = static_cast<double>((now() - *arrived_).count());
    gap_ns_ += gap_ns_ == 0 ? gap : (gap - gap_ns_) / kRateOver;
  }
  arrived_ = now();
  if (static_cast<size_t>(slot) >= queries_.size()) queries_.resize(static_cast<size_t>(slot) + 1);
  queries_[slot] = {.pipeline = &pipeline};
}

void StagedScheduler::Enqueue(Slot slot) {
  Query& query = queries_[slot];
  assert(!query.queued && !query.joined);
  query.at = query.pipeline->queue.insert(query.pipeline->queue.end(), slot);
  query.queued = true;
}

void StagedScheduler::Released(Slot slot) { Enqueue(slot); }

void StagedScheduler::Ready(std::span<const Member> nodes) {
  for (const Member member : nodes) {
    if (node(member).not_complete > 0) continue;
    Query& query = queries_[member.slot];
    query.next = member.node;
    if (!query.joined && !query.queued && !request(member.slot).held()) Enqueue(member.slot);
  }
}

void StagedScheduler::Gone(Slot slot) {
  Query& query = queries_[slot];
  Pipeline* const pipeline = query.pipeline;
  if (query.queued) pipeline->queue.erase(query.at);
  if (query.batch >= 0) {
    pipeline->batches.at(query.batch).queries[static_cast<size_t>(query.place)] = kNoSlot;
  }
  if (query.joined) active_rows_ -= RowsOf(slot);
  // Only its release is left to do, which is a no-op.
  query = {.pipeline = nullptr, .joined = true};
  --pipeline->requests;
  EraseIfUnused(pipeline);
}

void StagedScheduler::EraseIfUnused(const Pipeline* pipeline) {
  if (pipeline->requests > 0 || !pipeline->table.empty()) return;
  const auto found = pipelines_.find(pipeline->kind);
  pipelines_.erase(found);
}

StagedScheduler::Load StagedScheduler::LoadOf(const Batch& batch, int32_t start,
                                              int32_t num) const {
  Load load;
  for (int32_t i = start; i < start + num; ++i) {
    const Slot slot = batch.queries[static_cast<size_t>(i)];
    if (slot == kNoSlot) continue;
    load.rows += RowsOf(slot);
    load.length = std::max(load.length, request(slot).length);
  }
  return load;
}

std::vector<RequestTable::Slot> StagedScheduler::Collect(Pipeline& pipeline, int32_t rows,
                                                         bool alone, bool starts) {
  std::vector<Slot> slots;
  while (!pipeline.queue.empty()) {
    const int32_t size = RowsOf(pipeline.queue.front());
    if (size > rows && !(alone && slots.empty())) break;
    rows -= size;
    slots.push_back(TakeFirst(pipeline, starts));
  }
  return slots;
}

RequestTable::Slot StagedScheduler::TakeFirst(Pipeline& pipeline, bool starts) {
  const Slot slot = pipeline.queue.front();
  pipeline.queue.pop_front();
  Query& query = queries_[slot];
  query.queued = false;
  query.joined = true;
  active_rows_ += RowsOf(slot);
  if (starts) Start(slot);  // may add its client's next request to the queue
  return slot;
}

void StagedScheduler::Join(Pipeline& pipeline, StagedBatchId id, std::span<const Slot> slots) {
  Batch& batch = pipeline.batches[id];
  for (const Slot slot : slots) {
    queries_[slot].batch = id;
    queries_[slot].place = static_cast<int32_t>(batch.queries.size());
    batch.queries.push_back(slot);
  }
}

TimePoint StagedScheduler::DueAt(const Pipeline& pipeline) const {
  const Request& oldest = request(pipeline.queue.front());
  Duration delay = options_.queue_delay;
  if (delay == Duration(0) && staged_.by_length) {
    delay = CostOf(pipeline, 0, {options_.max_batch_size, oldest.length});
  }
  return oldest.arrived + delay;
}

void StagedScheduler::FormNew(Pipeline& pipeline) {
  if (pipeline.queue.empty() || pipeline.table.Front(0) != nullptr) return;
  const std::optional<int32_t> pair = pipeline.buffers.Legitimate();
  if (!pair) return;
  if (options_.stage_policy != nullptr) return AskAboutWaiting(pipeline, /*may_begin=*/true);
  if (DueAt(pipeline) > now()) {
    int64_t rows = 0;
    for (const Slot slot : pipeline.queue) {
      rows += RowsOf(slot);
      if (rows >= options_.max_batch_size) break;
    }
    if (rows < options_.max_batch_size) return;
  }
  const int32_t room = options_.max_batch_size - (staged_.by_length ? active_rows_ : 0);
  Load all;
  int32_t queries = 0;
  for (const Slot slot : pipeline.queue) {
    if (all.rows + RowsOf(slot) > room) break;
    all = {all.rows + RowsOf(slot), std::max(all.length, request(slot).length)};
    ++queries;
  }
  const int32_t part = queries == 0 ? 0 : BestPart(pipeline, 0, {queries, all});
  const int32_t rows = part == queries
                           ? room
                           : std::max(1, static_cast<int32_t>(int64_t{all.rows} * part / queries));
  // Some pieces may start later than a client's next request could.
  const bool starts = part < 2 || !MayDivide() ||
                      BestPieces(pipeline, 0, PartOf({queries, all}, part)).queries == part;
  const std::vector<Slot> slots =
      Collect(pipeline, rows, !staged_.by_length || active_rows_ == 0, starts);
  if (slots.empty()) return;
  const StagedBatchId id = MakeNew(pipeline, *pair, slots, starts);
  const auto size = static_cast<int32_t>(slots.size());
  if (WillSplit(pipeline, {size, LoadOf(pipeline.batches.at(id), 0, size)})) {
    pipeline.table.ForbidStretch(id);
  }
}

StagedBatchId StagedScheduler::MakeNew(Pipeline& pipeline, int32_t pair,
                                       std::span<const Slot> slots, bool starts) {
  const StagedBatchId id = pipeline.table.New(static_cast<int32_t>(slots.size()), now());
  Join(pipeline, id, slots);
  Batch& batch = pipeline.batches.at(id);
  batch.pair = pair;
  batch.owner = id;
  batch.starts_whole = starts;
  return id;
}

void StagedScheduler::MakeStretched(Pipeline& pipeline, StagedBatchId id,
                                    std::span<const Slot> slots) {
  pipeline.table.Stretch(id, static_cast<int32_t>(slots.size()));
  Join(pipeline, id, slots);
}

void StagedScheduler::Stretch(Pipeline& pipeline) {
  if (pipeline.queue.empty()) return;
  if (options_.stage_policy != nullptr) return AskAboutWaiting(pipeline, /*may_begin=*/false);
  if (!staged_.stretch) return;
  const std::optional<StagedBatchId> id = pipeline.table.latest();
  if (!id || !pipeline.table.MayStretch(*id)) return;
  const BatchTable::Row& row = pipeline.table.row(*id);
  const Duration limit = staged_.join_window;
  if (limit > Duration(0) && now() - row.created > limit) return;
  const Batch& batch = pipeline.batches.at(*id);
  const Load old = LoadOf(batch, 0, row.size);
  const std::optional<TimePoint> due = FirstDue(pipeline, *id, old);
  int32_t room = options_.max_batch_size - old.rows;
  if (staged_.by_length) room = std::min(room, options_.max_batch_size - active_rows_);
  Load more;
  int32_t joining = 0;
  for (const Slot slot : pipeline.queue) {
    const int32_t rows = RowsOf(slot);
    if (more.rows + rows > room) break;
    const Load next{more.rows + rows, std::max(more.length, request(slot).length)};
    if (due && EndsAfter(pipeline, *id, old, next, *due)) break;
    more = next;
    ++joining;
  }
  if (joining == 0) return;
  if (limit == Duration(0) && !PaysToJoin(pipeline, *id, {joining, more})) return;
  const std::vector<Slot> slots = Collect(pipeline, more.rows, /*alone=*/false, /*starts=*/false);
  if (slots.empty()) return;
  MakeStretched(pipeline, *id, slots);
  if (WillSplit(pipeline, {row.size, LoadOf(batch, 0, row.size)})) {
    pipeline.table.ForbidStretch(*id);
  }
}

bool StagedScheduler::SplitAfter(Pipeline& pipeline, int32_t stage, StagedBatchId id) {
  if (stage + 1 == pipeline.table.stages() || !pipeline.table.CaughtUp(stage, id)) return false;
  if (options_.stage_policy != nullptr) return AskAboutSplit(pipeline, stage, id);
  const int32_t size = pipeline.table.row(id).size;
  const int32_t part =
      BestPart(pipeline, stage + 1, {size, LoadOf(pipeline.batches.at(id), 0, size)});
  if (part == size) return false;
  std::vector<int32_t> sizes(static_cast<size_t>(size / part), part);
  if (size % part > 0) sizes.push_back(size % part);
  Divide(pipeline, stage, id, sizes);
  return true;
}

void StagedScheduler::Divide(Pipeline& pipeline, int32_t stage, StagedBatchId id,
                             std::span<const int32_t> sizes) {
  const Batch& whole = pipeline.batches.at(id);
  const std::vector<StagedBatchId> parts = pipeline.table.Split(stage, id, sizes);
  auto first = whole.queries.begin();
  for (size_t i = 0; i < parts.size(); ++i) {
    Batch& part = pipeline.batches[parts[i]];
    part.pair = whole.pair;
    part.owner = whole.owner;
    part.queries.assign(first, first + sizes[i]);
    first += sizes[i];
    for (size_t place = 0; place < part.queries.size(); ++place) {
      const Slot slot = part.queries[place];
      if (slot == kNoSlot) continue;
      queries_[slot].batch = parts[i];
      queries_[slot].place = static_cast<int32_t>(place);
    }
  }
  pipeline.batches.erase(id);
}

void StagedScheduler::SplitOffSkipping(const Work& work) {
  if (options_.stage_types.empty()) return;
  Pipeline& pipeline = *work.pipeline;
  const std::vector<CellType>& types = pipeline.kind.types;
  Batch& old = pipeline.batches.at(work.part.batch);
  std::map<int32_t, std::vector<Slot>> skipping;  // by the stage where they continue
  for (int32_t i = work.part.start; i < work.part.start + work.part.num; ++i) {
    Slot& slot = old.queries[static_cast<size_t>(i)];
    if (slot == kNoSlot) continue;
    const CellType next = request(slot).nodes[queries_[slot].next].type;
    const auto at = std::find(types.begin() + work.stage + 1, types.end(), next);
    assert(at != types.end());
    const auto stage = static_cast<int32_t>(at - types.begin());
    if (stage == work.stage + 1) continue;
    skipping[stage].push_back(slot);
    slot = kNoSlot;
  }
  const TimePoint created = pipeline.table.row(work.part.batch).created;
  for (const auto& [stage, slots] : skipping) {
    const StagedBatchId id =
        pipeline.table.SplitOff(static_cast<int32_t>(slots.size()), stage, created);
    Join(pipeline, id, slots);
    Batch& batch = pipeline.batches.at(id);
    batch.pair = -1;
    batch.owner = id;
  }
}

void StagedScheduler::EndPart(const Work& work) {
  Pipeline& pipeline = *work.pipeline;
  pipeline.buffers.End(work.stage, work.pair, work.part.num);
  pipeline.table.Update(work.stage, work.part);
  SplitOffSkipping(work);
  Stretch(pipeline);
  if (SplitAfter(pipeline, work.stage, work.part.batch)) return;
  pipeline.table.Forward(work.stage, work.part);
  if (pipeline.table.rows().contains(work.part.batch)) return;
  const auto ended = pipeline.batches.find(work.part.batch);
  for (const Slot slot : ended->second.queries) {
    if (slot != kNoSlot) queries_[slot].batch = -1;
  }
  pipeline.batches.erase(ended);
}

void StagedScheduler::CollectLeft(const Running& task, std::vector<BatchRequestId>& left) {
  RequestTable::CollectLeft(task, left);
  const Work work = std::exchange(work_[task.worker], {});
  --running_;
  EndPart(work);
  EraseIfUnused(work.pipeline);
}

std::optional<Task> StagedScheduler::NextTask(WorkerId worker) {
  if (static_cast<size_t>(worker) >= work_.size()) work_.resize(static_cast<size_t>(worker) + 1);
  if (work_[worker].pipeline != nullptr) return std::nullopt;
  int32_t stages = 0;
  for (auto& [kind, pipeline] : pipelines_) {
    Stretch(pipeline);
    stages = std::max(stages, pipeline.table.stages());
  }
  // Batches with the fewest remaining stages go first.
  for (int32_t left = 1; left <= stages; ++left) {
    for (auto& [kind, pipeline] : pipelines_) {
      const int32_t stage = pipeline.table.stages() - left;
      if (stage == 0) FormNew(pipeline);
      const BatchPart* const front = stage < 0 ? nullptr : pipeline.table.Front(stage);
      if (front == nullptr) continue;
      const Batch& batch = pipeline.batches.at(front->batch);
      const int32_t piece = PieceOf(pipeline, stage, *front);
      if (!pipeline.buffers.Begin(stage, batch.pair, batch.owner, piece)) continue;
      const BatchPart part =
          piece == front->num
              ? pipeline.table.Take(stage)
              : pipeline.table.TakePiece(stage, piece, MeetAfter(pipeline, stage, *front, piece));
      const Work work{&pipeline, stage, part, batch.pair};
      std::vector<Member> members = TakeList();
      int32_t length = 0;
      for (int32_t i = part.start; i < part.start + part.num; ++i) {
        const Slot slot = batch.queries[static_cast<size_t>(i)];
        if (slot == kNoSlot) continue;
        members.push_back({slot, queries_[slot].next});
        length = std::max(length, request(slot).length);
      }
      if (members.empty()) {  // all queries have left: it takes no time
        EndPart(work);
        EraseIfUnused(work.pipeline);
        return NextTask(worker);
      }
      work_[worker] = work;
      ++running_;
      Task task = Give(pipeline.kind.types[static_cast<size_t>(stage)], worker, std::move(members));
      task.length = length;
      return task;
    }
  }
  return std::nullopt;
}

std::optional<TimePoint> StagedScheduler::FormsAt(TimePoint now) const {
  std::optional<TimePoint> wake;
  for (const auto& [kind, pipeline] : pipelines_) {
    if (pipeline.queue.empty()) continue;
    const std::optional<TimePoint> due =
        options_.stage_policy != nullptr ? pipeline.wake_at : DueAt(pipeline);
    if (due && *due > now && (!wake || *due < *wake)) wake = due;
  }
  return wake;
}

}  // namespace chairlift
