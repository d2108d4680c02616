#include "batching/policies/staged.h"

#include <algorithm>
#include <cassert>
#include <list>
#include <map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "batching/policies/stages/batch_table.h"
#include "batching/policies/stages/buffer_pairs.h"
#include "batching/request_table.h"

namespace chairlift {
namespace {

// Company that saves less than one part in so many of what stages take saves nothing: costs are
// measured, and each task has a little of its own.
constexpr int kSavesNothing = 20;

class StagedScheduler final : public RequestTable {
 public:
  StagedScheduler(const PolicyOptions& options, const StagedOptions& staged)
      : RequestTable({.deadline_until_end = true}), options_(options), staged_(staged) {}

 private:
  // What requests must have in common to share batches: their types by stage, the bucket of their
  // lengths.
  struct Kind {
    std::vector<CellType> types;
    int32_t bucket = 0;
    auto operator<=>(const Kind&) const = default;
  };
  struct Batch {
    std::vector<Slot> queries;  // kNoSlot: gone
    int32_t pair = 0;
    StagedBatchId owner = 0;  // of its buffers: the batch it was split from
  };
  // The stages as one kind of request passes them.
  struct Pipeline {
    Pipeline(const Kind& k, int32_t pairs)
        : kind(k),
          table(static_cast<int32_t>(k.types.size())),
          buffers(static_cast<int32_t>(k.types.size()), pairs) {}
    Kind kind;
    BatchTable table;
    BufferPairs buffers;
    std::map<StagedBatchId, Batch> batches;
    std::list<Slot> queue;  // in no batch yet
    int32_t requests = 0;   // that are not gone
  };
  struct Query {
    Pipeline* pipeline = nullptr;
    int32_t next = 0;  // the run that its next node is of
    bool queued = false;
    bool joined = false;  // a batch
    std::list<Slot>::iterator at = {};
    StagedBatchId batch = -1;
    int32_t place = 0;
  };
  struct Work {
    Pipeline* pipeline = nullptr;  // null: none
    int32_t stage = 0;
    BatchPart part = {};
  };

  void Arrived(Slot slot, const CellGraph& graph) override;
  void Released(Slot slot) override;
  void Ready(std::span<const Member> nodes) override;
  void Gone(Slot slot) override;
  void Ended(const Running& task) override;
  std::optional<Task> NextTask(WorkerId worker) override;
  std::optional<TimePoint> FormsAt(TimePoint now) const override;

  void Enqueue(Slot slot);
  int32_t RowsOf(Slot slot) const { return request(slot).nodes[0].size(); }
  // Of those in places [start, start + num) that are still there: their rows, the longest length.
  struct Load {
    int32_t rows = 0;
    int32_t length = 0;
  };
  Load LoadOf(const Batch& batch, int32_t start, int32_t num) const;
  TimePoint DueAt(const Pipeline& pipeline) const;
  // Takes those that wait, up to so many rows; one of more rows goes if it is the first and
  // `alone`. `starts`: their first stage is given out in this very event; only then may a client's
  // next request come with it.
  std::vector<Slot> Collect(Pipeline& pipeline, int32_t rows, bool alone, bool starts);
  void Join(Pipeline& pipeline, StagedBatchId id, std::span<const Slot> slots);
  // A new batch, which can begin at once, if nothing waits for the first stage.
  void FormNew(Pipeline& pipeline);
  void Stretch(Pipeline& pipeline);
  // Whether, after stages up to and with this one, a batch like that is to be split.
  bool ToSplit(const Pipeline& pipeline, int32_t stage, Load load) const;
  bool WillSplit(const Pipeline& pipeline, Load load) const;
  void AddHalves(const Pipeline& pipeline, int32_t stage, const Batch& batch, int32_t start,
                 int32_t num, std::vector<int32_t>& sizes) const;
  bool SplitAfter(Pipeline& pipeline, int32_t stage, StagedBatchId id);
  void EndPart(const Work& work);
  void EraseIfUnused(const Pipeline* pipeline);

  const PolicyOptions options_;
  const StagedOptions staged_;
  std::map<Kind, Pipeline> pipelines_;
  std::vector<Query> queries_;  // by slot
  std::vector<Work> work_;      // by worker
  int32_t active_rows_ = 0;     // of requests in batches
};

void StagedScheduler::Arrived(Slot slot, const CellGraph& graph) {
  Kind kind;
  for (int32_t i = 0; i < graph.num_runs(); ++i) {
    const CellGraph::Run run = graph.run(i);
    kind.types.insert(kind.types.end(), static_cast<size_t>(run.count), run.type);
  }
  assert(request(slot).roots.size() == 1);
  if (staged_.by_length)
    kind.bucket = (graph.length() + options_.bucket_width - 1) / options_.bucket_width;
  Pipeline& pipeline = pipelines_.try_emplace(kind, kind, staged_.buffer_pairs).first->second;
  ++pipeline.requests;
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
  // What is left of it is only to be released, which is to do nothing.
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
    const Slot slot = pipeline.queue.front();
    const int32_t size = RowsOf(slot);
    if (size > rows && !(alone && slots.empty())) break;
    rows -= size;
    pipeline.queue.pop_front();
    Query& query = queries_[slot];
    query.queued = false;
    query.joined = true;
    active_rows_ += size;
    slots.push_back(slot);
    if (starts) Start(slot);  // may put its client's next one into the queue
  }
  return slots;
}

void StagedScheduler::Join(Pipeline& pipeline, StagedBatchId id, std::span<const Slot> slots) {
  Batch& batch = pipeline.batches[id];
  for (const Slot slot : slots) {
    queries_[slot].batch = id;
    queries_[slot].place = static_cast<int32_t>(batch.queries.size());
    batch.queries.push_back(slot);
  }
}

bool StagedScheduler::ToSplit(const Pipeline& pipeline, int32_t stage, Load load) const {
  if (!staged_.split || options_.costs == nullptr || load.rows < 2) return false;
  const auto remain = [&](int32_t rows) -> Duration {  // 0: not known
    Duration sum(0);
    for (auto s = static_cast<size_t>(stage) + 1; s < pipeline.kind.types.size(); ++s) {
      const Duration own = options_.costs->Cost(pipeline.kind.types[s], rows, load.length);
      if (own == Duration(0)) return Duration(0);
      sum += own;
    }
    return sum;
  };
  const Duration whole = remain(load.rows);
  const Duration larger = remain((load.rows + 1) / 2), smaller = remain(load.rows / 2);
  if (whole == Duration(0) || larger == Duration(0) || smaller == Duration(0)) return false;
  return whole + whole / kSavesNothing >= larger + smaller;
}

bool StagedScheduler::WillSplit(const Pipeline& pipeline, Load load) const {
  for (int32_t stage = 0; stage + 1 < pipeline.table.stages(); ++stage) {
    if (ToSplit(pipeline, stage, load)) return true;
  }
  return false;
}

TimePoint StagedScheduler::DueAt(const Pipeline& pipeline) const {
  const Request& oldest = request(pipeline.queue.front());
  Duration delay = options_.queue_delay;
  if (delay == Duration(0) && staged_.by_length && options_.costs != nullptr) {
    delay = options_.costs->Cost(pipeline.kind.types[0], options_.max_batch_size, oldest.length);
  }
  return oldest.arrived + delay;
}

void StagedScheduler::FormNew(Pipeline& pipeline) {
  if (pipeline.queue.empty() || pipeline.table.Front(0) != nullptr) return;
  const std::optional<int32_t> pair = pipeline.buffers.Legitimate();
  if (!pair) return;
  if (DueAt(pipeline) > now()) {
    int64_t rows = 0;
    for (const Slot slot : pipeline.queue) {
      rows += RowsOf(slot);
      if (rows >= options_.max_batch_size) break;
    }
    if (rows < options_.max_batch_size) return;
  }
  const int32_t room = options_.max_batch_size - (staged_.by_length ? active_rows_ : 0);
  const std::vector<Slot> slots =
      Collect(pipeline, room, !staged_.by_length || active_rows_ == 0, /*starts=*/true);
  if (slots.empty()) return;
  const StagedBatchId id = pipeline.table.New(static_cast<int32_t>(slots.size()), now());
  Join(pipeline, id, slots);
  Batch& batch = pipeline.batches.at(id);
  batch.pair = *pair;
  batch.owner = id;
  if (WillSplit(pipeline, LoadOf(batch, 0, static_cast<int32_t>(slots.size())))) {
    pipeline.table.ForbidStretch(id);
  }
}

void StagedScheduler::Stretch(Pipeline& pipeline) {
  if (!staged_.stretch || pipeline.queue.empty()) return;
  const std::optional<StagedBatchId> id = pipeline.table.latest();
  if (!id || !pipeline.table.MayStretch(*id)) return;
  const Duration limit =
      staged_.longest_wait > Duration(0) ? staged_.longest_wait : options_.latency_objective / 2;
  const BatchTable::Row& row = pipeline.table.row(*id);
  if (limit > Duration(0) && now() - row.created > limit) return;
  const Batch& batch = pipeline.batches.at(*id);
  int32_t room = options_.max_batch_size - LoadOf(batch, 0, row.size).rows;
  if (staged_.by_length) room = std::min(room, options_.max_batch_size - active_rows_);
  const std::vector<Slot> slots = Collect(pipeline, room, /*alone=*/false, /*starts=*/false);
  if (slots.empty()) return;
  pipeline.table.Stretch(*id, static_cast<int32_t>(slots.size()));
  Join(pipeline, *id, slots);
  if (WillSplit(pipeline, LoadOf(batch, 0, row.size))) pipeline.table.ForbidStretch(*id);
}

void StagedScheduler::AddHalves(const Pipeline& pipeline, int32_t stage, const Batch& batch,
                                int32_t start, int32_t num, std::vector<int32_t>& sizes) const {
  if (num < 2 || !ToSplit(pipeline, stage, LoadOf(batch, start, num))) {
    sizes.push_back(num);
    return;
  }
  const int32_t half = (num + 1) / 2;
  AddHalves(pipeline, stage, batch, start, half, sizes);
  AddHalves(pipeline, stage, batch, start + half, num - half, sizes);
}

bool StagedScheduler::SplitAfter(Pipeline& pipeline, int32_t stage, StagedBatchId id) {
  if (stage + 1 == pipeline.table.stages() || !pipeline.table.CaughtUp(stage, id)) return false;
  const Batch& whole = pipeline.batches.at(id);
  std::vector<int32_t> sizes;
  AddHalves(pipeline, stage, whole, 0, pipeline.table.row(id).size, sizes);
  if (sizes.size() == 1) return false;
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
  return true;
}

void StagedScheduler::EndPart(const Work& work) {
  Pipeline& pipeline = *work.pipeline;
  pipeline.buffers.End(work.stage);
  pipeline.table.Update(work.stage, work.part);
  Stretch(pipeline);
  if (SplitAfter(pipeline, work.stage, work.part.batch)) return;
  pipeline.table.Forward(work.stage, work.part);
  if (work.stage + 1 < pipeline.table.stages()) return;
  const auto ended = pipeline.batches.find(work.part.batch);
  for (const Slot slot : ended->second.queries) {
    if (slot != kNoSlot) queries_[slot].batch = -1;
  }
  pipeline.batches.erase(ended);
}

void StagedScheduler::Ended(const Running& task) {
  const Work work = std::exchange(work_[task.worker], {});
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
  // The fewest stages left go first.
  for (int32_t left = 1; left <= stages; ++left) {
    for (auto& [kind, pipeline] : pipelines_) {
      const int32_t stage = pipeline.table.stages() - left;
      if (stage == 0) FormNew(pipeline);
      const BatchPart* const front = stage < 0 ? nullptr : pipeline.table.Front(stage);
      if (front == nullptr) continue;
      const Batch& batch = pipeline.batches.at(front->batch);
      if (!pipeline.buffers.Begin(stage, batch.pair, batch.owner, front->num)) continue;
      const Work work{&pipeline, stage, pipeline.table.Take(stage)};
      std::vector<Member> members = TakeList();
      int32_t length = 0;
      for (int32_t i = work.part.start; i < work.part.start + work.part.num; ++i) {
        const Slot slot = batch.queries[static_cast<size_t>(i)];
        if (slot == kNoSlot) continue;
        members.push_back({slot, queries_[slot].next});
        length = std::max(length, request(slot).length);
      }
      if (members.empty()) {  // all have left: it runs in no time
        EndPart(work);
        EraseIfUnused(work.pipeline);
        return NextTask(worker);
      }
      work_[worker] = work;
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
    const TimePoint due = DueAt(pipeline);
    if (due > now && (!wake || due < *wake)) wake = due;
  }
  return wake;
}

}  // namespace

StatusOr<std::unique_ptr<Scheduler>> MakeStagedScheduler(const PolicyOptions& options,
                                                         const StagedOptions& staged) {
  if (staged.buffer_pairs < 1) {
    return InvalidArgument("buffer_pairs is {}; it must be at least 1 (2 to run as a pipeline)",
                           staged.buffer_pairs);
  }
  if (staged.longest_wait < Duration(0)) {
    return InvalidArgument("longest_wait_us is {}; it must be at least 0",
                           staged.longest_wait.count() / 1000);
  }
  if (staged.split && options.costs == nullptr) {
    return InvalidArgument("batches are to be split by what stages cost, but there are no costs");
  }
  return std::make_unique<StagedScheduler>(options, staged);
}

}  // namespace chairlift
