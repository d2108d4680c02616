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

// What is known of how fast queries come is of about so many of the latest.
constexpr double kRateOver = 32;
// Of all workers, what the queries that come can be expected to keep busy at most.
constexpr double kMostBusy = 0.9;
// Of those who come later, how many wait for a second of work, for each query that is there and
// each b / (1 − b) where the workers are busy for a share b of the time. 1 would be right if they
// came to a queue that is served one by one; as they share batches, they wait for less. Found by
// simulation, on costs in proportion to rows, on affine ones, on ones with a single stage that
// gains from company and on GPU-like ones: 0.2 to 0.3 are within 3% of the best at every load.
constexpr double kShareOfWork = 0.25;
// A user's policy is not called again sooner, if nothing happens.
constexpr Duration kSoonestWake = std::chrono::microseconds(10);

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
    std::vector<Slot> queries;  // kNoSlot: gone, or in another batch
    int32_t pair = 0;           // −1: it is in no buffers
    StagedBatchId owner = 0;    // of its buffers: the batch it was split from
  };
  // The stages as one kind of request passes them.
  struct Pipeline {
    Pipeline(const Kind& k, int32_t pairs, int32_t at_once)
        : kind(k),
          table(static_cast<int32_t>(k.types.size())),
          buffers(static_cast<int32_t>(k.types.size()), pairs, at_once) {}
    Kind kind;
    BatchTable table;
    BufferPairs buffers;
    std::map<StagedBatchId, Batch> batches;
    std::list<Slot> queue;                  // in no batch yet
    int32_t requests = 0;                   // that are not gone
    std::optional<TimePoint> wake_at = {};  // as a user's policy wants to be called
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
    int32_t pair = 0;
  };

  void Arrived(Slot slot, const CellGraph& graph) override;
  void Released(Slot slot) override;
  void Ready(std::span<const Member> nodes) override;
  void Gone(Slot slot) override;
  void CollectLeft(const Running& task, std::vector<BatchRequestId>& left) override;
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
  Duration CostOf(const Pipeline& pipeline, int32_t stage, Load load) const;  // 0: not known
  // Of stages [first, last) together.
  Duration CostOfStages(const Pipeline& pipeline, int32_t first, int32_t last, Load load) const;
  // Takes those that wait, up to so many rows; one of more rows goes if it is the first and
  // `alone`. `starts`: their first stage is given out in this very event; only then may a client's
  // next request come with it.
  std::vector<Slot> Collect(Pipeline& pipeline, int32_t rows, bool alone, bool starts);
  Slot TakeFirst(Pipeline& pipeline, bool starts);
  void Join(Pipeline& pipeline, StagedBatchId id, std::span<const Slot> slots);
  // A new batch, which can begin at once, if nothing waits for the first stage.
  void FormNew(Pipeline& pipeline);
  void Stretch(Pipeline& pipeline);
  StagedBatchId MakeNew(Pipeline& pipeline, int32_t pair, std::span<const Slot> slots);
  void MakeStretched(Pipeline& pipeline, StagedBatchId id, std::span<const Slot> slots);
  // Whether so many more rows, where all costs are known, make a query of the batch late that would
  // not be without them.
  bool MakesLate(const Pipeline& pipeline, StagedBatchId id, Load more) const;
  // How much of all workers' time the queries that come take one by one, each of `rows`; 0 where it
  // is not known, kMostBusy at most.
  double Busy(const Pipeline& pipeline, Load one) const;
  // Into how large parts `queries`, together of `load`, are best divided before `stage`: their
  // number, halved some times. That of all where costs are not known.
  int32_t BestPart(const Pipeline& pipeline, int32_t stage, int32_t queries, Load load) const;
  bool WillSplit(const Pipeline& pipeline, int32_t queries, Load load) const;
  class BestOrder;
  // Whether `joining` queries of `more` had better catch up with the batch than follow it.
  bool PaysToJoin(const Pipeline& pipeline, StagedBatchId id, int32_t joining, Load more) const;
  // Workers without a task; the one that asks has none.
  int32_t FreeWorkers() const;
  bool SplitAfter(Pipeline& pipeline, int32_t stage, StagedBatchId id);
  void Divide(Pipeline& pipeline, int32_t stage, StagedBatchId id, std::span<const int32_t> sizes);
  // Those of a part that has run who go on at a later stage than the next.
  void SplitOffSkipping(const Work& work);
  void EndPart(const Work& work);
  // A user's policy decides about those that wait; `may_begin`: they may make a new batch.
  class Operations;
  void AskAboutWaiting(Pipeline& pipeline, bool may_begin);
  void EraseIfUnused(const Pipeline* pipeline);

  const PolicyOptions options_;
  const StagedOptions staged_;
  int32_t running_ = 0;                    // tasks
  std::optional<TimePoint> arrived_ = {};  // the latest query
  double gap_ns_ = 0;                      // between queries, in mean
  std::map<Kind, Pipeline> pipelines_;
  std::vector<Query> queries_;  // by slot
  std::vector<Work> work_;      // by worker
  int32_t active_rows_ = 0;     // of requests in batches
};

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
  if (starts) Start(slot);  // may put its client's next one into the queue
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

Duration StagedScheduler::CostOf(const Pipeline& pipeline, int32_t stage, Load load) const {
  if (options_.costs == nullptr) return Duration(0);
  return options_.costs->Cost(pipeline.kind.types[static_cast<size_t>(stage)], load.rows,
                              load.length);
}

Duration StagedScheduler::CostOfStages(const Pipeline& pipeline, int32_t first, int32_t last,
                                       Load load) const {
  Duration sum(0);
  for (int32_t stage = first; stage < last; ++stage) {
    const Duration own = CostOf(pipeline, stage, load);
    if (own == Duration(0)) return Duration(0);
    sum += own;
  }
  return sum;
}

double StagedScheduler::Busy(const Pipeline& pipeline, Load one) const {
  const Duration alone = CostOfStages(pipeline, 0, pipeline.table.stages(), one);
  const double gaps = gap_ns_ * std::max(options_.workers, 1);
  return gaps == 0 ? 0 : std::min(static_cast<double>(alone.count()) / gaps, kMostBusy);
}

// The least of the sum of latencies of some queries, and of what their work delays those who come
// later.
class StagedScheduler::BestOrder {
 public:
  BestOrder(const StagedScheduler& scheduler, const Pipeline& pipeline, int32_t queries, Load load)
      : scheduler_(scheduler), pipeline_(pipeline), all_(queries), load_(load) {
    const double busy = scheduler.Busy(pipeline, {std::max(1, load.rows / queries), load.length});
    weight_ = kShareOfWork * queries * busy / (1 - busy);
  }

  // 0: some costs are not known.
  int32_t PartAt(int32_t stage) {
    int32_t part = all_;
    for (; part > 1 && Of(stage, part).halved; part = (part + 1) / 2) {
    }
    return unknown_ ? 0 : part;
  }

 private:
  struct Order {
    double latency = 0;  // their sum
    double work = 0;
    bool halved = false;
  };
  // How so many pass the stages from this one on.
  Order Of(int32_t stage, int32_t queries) {
    if (stage == pipeline_.table.stages() || queries == 0) return {};
    const auto [known, fresh] = orders_.try_emplace({stage, queries});
    if (!fresh) return known->second;
    const int32_t rows = std::max(1, static_cast<int32_t>(int64_t{load_.rows} * queries / all_));
    const auto time =
        static_cast<double>(scheduler_.CostOf(pipeline_, stage, {rows, load_.length}).count());
    unknown_ = unknown_ || time == 0;
    const Order rest = Of(stage + 1, queries);
    Order best{queries * time + rest.latency, time + rest.work};
    if (queries > 1) {
      const int32_t later = queries / 2;  // they wait for the others
      const Order first = Of(stage, queries - later), second = Of(stage, later);
      const Order halves{first.latency + later * first.work + second.latency,
                         first.work + second.work, true};
      if (halves.latency + weight_ * halves.work < best.latency + weight_ * best.work) {
        best = halves;
      }
    }
    return orders_[{stage, queries}] = best;
  }

  const StagedScheduler& scheduler_;
  const Pipeline& pipeline_;
  const int32_t all_;
  const Load load_;
  double weight_ = 0;
  bool unknown_ = false;
  std::map<std::pair<int32_t, int32_t>, Order> orders_;  // by stage and queries
};

int32_t StagedScheduler::BestPart(const Pipeline& pipeline, int32_t stage, int32_t queries,
                                  Load load) const {
  if (!staged_.split || staged_.by_length || options_.costs == nullptr || load.rows < 2 ||
      queries < 2) {
    return queries;
  }
  const int32_t part = BestOrder(*this, pipeline, queries, load).PartAt(stage);
  return part == 0 ? queries : part;
}

bool StagedScheduler::WillSplit(const Pipeline& pipeline, int32_t queries, Load load) const {
  for (int32_t stage = 1; stage < pipeline.table.stages(); ++stage) {
    if (BestPart(pipeline, stage, queries, load) < queries) return true;
  }
  return false;
}

int32_t StagedScheduler::FreeWorkers() const { return std::max(options_.workers, 1) - running_; }

bool StagedScheduler::PaysToJoin(const Pipeline& pipeline, StagedBatchId id, int32_t joining,
                                 Load more) const {
  const BatchTable::Row& row = pipeline.table.row(id);
  const Load old = LoadOf(pipeline.batches.at(id), 0, row.size);
  const int32_t next = row.front + 1, stages = pipeline.table.stages();
  const auto take = [&](int32_t first, int32_t rows) {
    return static_cast<double>(
        CostOfStages(pipeline, first, stages, {rows, std::max(old.length, more.length)}).count());
  };
  const double old_alone = take(next, old.rows), more_alone = take(0, more.rows);
  const double together = take(next, old.rows + more.rows), more_rest = take(next, more.rows);
  if (old_alone == 0 || more_alone == 0 || together == 0 || more_rest == 0) return true;
  const double catching_up = more_alone - more_rest;
  const int32_t queries = row.size;
  // The batch needs a worker as well, but where one runs it.
  const bool at_work = row.completed[static_cast<size_t>(row.front)] == 0;
  const double wait = FreeWorkers() > (at_work ? 0 : 1) ? 0 : old_alone;
  return (queries + joining) * (catching_up + together) <
         queries * old_alone + joining * (wait + more_alone);
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
  const int32_t part = BestPart(pipeline, 0, queries, all);
  const int32_t rows = part == queries
                           ? room
                           : std::max(1, static_cast<int32_t>(int64_t{all.rows} * part / queries));
  const std::vector<Slot> slots =
      Collect(pipeline, rows, !staged_.by_length || active_rows_ == 0, /*starts=*/true);
  if (slots.empty()) return;
  const StagedBatchId id = MakeNew(pipeline, *pair, slots);
  const auto size = static_cast<int32_t>(slots.size());
  if (WillSplit(pipeline, size, LoadOf(pipeline.batches.at(id), 0, size))) {
    pipeline.table.ForbidStretch(id);
  }
}

StagedBatchId StagedScheduler::MakeNew(Pipeline& pipeline, int32_t pair,
                                       std::span<const Slot> slots) {
  const StagedBatchId id = pipeline.table.New(static_cast<int32_t>(slots.size()), now());
  Join(pipeline, id, slots);
  Batch& batch = pipeline.batches.at(id);
  batch.pair = pair;
  batch.owner = id;
  return id;
}

void StagedScheduler::MakeStretched(Pipeline& pipeline, StagedBatchId id,
                                    std::span<const Slot> slots) {
  pipeline.table.Stretch(id, static_cast<int32_t>(slots.size()));
  Join(pipeline, id, slots);
}

bool StagedScheduler::MakesLate(const Pipeline& pipeline, StagedBatchId id, Load more) const {
  const BatchTable::Row& row = pipeline.table.row(id);
  const Batch& batch = pipeline.batches.at(id);
  std::vector<TimePoint> due;
  for (const Slot slot : batch.queries) {
    if (slot == kNoSlot) continue;
    const Request& query = request(slot);
    if (options_.latency_objective > Duration(0)) {
      due.push_back(query.arrived + options_.latency_objective);
    }
    if (query.deadline) due.push_back((*query.deadline)->first);
  }
  if (due.empty()) return false;
  const Load old = LoadOf(batch, 0, row.size);
  const Load both{old.rows + more.rows, std::max(old.length, more.length)};
  const int32_t next = row.front + 1;
  const int32_t stages = pipeline.table.stages();
  const Duration alone = CostOfStages(pipeline, next, stages, old);
  const Duration catching_up = CostOfStages(pipeline, 0, next, more);
  const Duration together = CostOfStages(pipeline, next, stages, both);
  if (catching_up == Duration(0) || together == Duration(0)) return false;
  return std::any_of(due.begin(), due.end(), [&](TimePoint at) {
    return now() + alone <= at && now() + catching_up + together > at;
  });
}

void StagedScheduler::Stretch(Pipeline& pipeline) {
  if (pipeline.queue.empty()) return;
  if (options_.stage_policy != nullptr) return AskAboutWaiting(pipeline, /*may_begin=*/false);
  if (!staged_.stretch) return;
  const std::optional<StagedBatchId> id = pipeline.table.latest();
  if (!id || !pipeline.table.MayStretch(*id)) return;
  const BatchTable::Row& row = pipeline.table.row(*id);
  const Duration limit = staged_.longest_wait;
  if (limit > Duration(0) && now() - row.created > limit) return;
  const Batch& batch = pipeline.batches.at(*id);
  int32_t room = options_.max_batch_size - LoadOf(batch, 0, row.size).rows;
  if (staged_.by_length) room = std::min(room, options_.max_batch_size - active_rows_);
  Load more;
  int32_t joining = 0;
  for (const Slot slot : pipeline.queue) {
    const int32_t rows = RowsOf(slot);
    if (more.rows + rows > room) break;
    const Load next{more.rows + rows, std::max(more.length, request(slot).length)};
    if (MakesLate(pipeline, *id, next)) break;
    more = next;
    ++joining;
  }
  if (joining == 0) return;
  if (limit == Duration(0) && !PaysToJoin(pipeline, *id, joining, more)) return;
  const std::vector<Slot> slots = Collect(pipeline, more.rows, /*alone=*/false, /*starts=*/false);
  if (slots.empty()) return;
  MakeStretched(pipeline, *id, slots);
  if (WillSplit(pipeline, row.size, LoadOf(batch, 0, row.size))) {
    pipeline.table.ForbidStretch(*id);
  }
}

// What a user's policy may do about one pipeline, and knows of it.
class StagedScheduler::Operations final : public MetaOperations {
 public:
  // To decide about those that wait; or about a batch that has run so many stages.
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
    scheduler_.MakeNew(pipeline_, *pair_, Take(queries, /*starts=*/true));
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
  std::optional<int32_t> pair_;  // with which a new batch may begin
  StagedBatchId batch_ = -1;
  int32_t stage_ = -1;  // that the batch has run; −1: queries wait
  bool split_ = false;
  bool has_latest_ = false;
  StageBatch latest_;
  std::vector<int32_t> latest_rows_;
  int32_t room_ = 0;
};

void StagedScheduler::AskAboutWaiting(Pipeline& pipeline, bool may_begin) {
  Operations(*this, pipeline, may_begin ? pipeline.buffers.Legitimate() : std::nullopt).Decide();
}

bool StagedScheduler::SplitAfter(Pipeline& pipeline, int32_t stage, StagedBatchId id) {
  if (stage + 1 == pipeline.table.stages() || !pipeline.table.CaughtUp(stage, id)) return false;
  if (options_.stage_policy != nullptr) {
    const std::vector<Slot>& queries = pipeline.batches.at(id).queries;
    if (std::all_of(queries.begin(), queries.end(), [](Slot slot) { return slot == kNoSlot; })) {
      return false;
    }
    Operations operations(*this, pipeline, id, stage);
    operations.Decide();
    return operations.split();
  }
  const int32_t size = pipeline.table.row(id).size;
  const int32_t part =
      BestPart(pipeline, stage + 1, size, LoadOf(pipeline.batches.at(id), 0, size));
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
  std::map<int32_t, std::vector<Slot>> skipping;  // by the stage at which they go on
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
  if (work.stage + 1 < pipeline.table.stages()) return;
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
  // The fewest stages left go first.
  for (int32_t left = 1; left <= stages; ++left) {
    for (auto& [kind, pipeline] : pipelines_) {
      const int32_t stage = pipeline.table.stages() - left;
      if (stage == 0) FormNew(pipeline);
      const BatchPart* const front = stage < 0 ? nullptr : pipeline.table.Front(stage);
      if (front == nullptr) continue;
      const Batch& batch = pipeline.batches.at(front->batch);
      if (!pipeline.buffers.Begin(stage, batch.pair, batch.owner, front->num)) continue;
      const Work work{&pipeline, stage, pipeline.table.Take(stage), batch.pair};
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
