// Decides batch sizes of staged queries, and which queries join a batch, from the costs of stages.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "batching/policies/stages/staged_scheduler.h"

namespace chairlift {
namespace {

// An upper bound on the expected share of all workers' time that arriving queries take.
constexpr double kMostAlone = 0.9;
constexpr double kMostTogether = 0.95;
// The assumed number of later queries that wait for a second of work, per present query, is this
// times b / (1 − b). b is the share of time for which the arriving queries would keep the workers
// busy: one by one, or in the largest batches if one by one the queue would grow for ever. 1 would
// be correct for a queue that serves one query at a time; with shared batches, queries wait for
// less. Found by simulation with costs in proportion to rows, with affine ones, with ones where a
// single stage gains from batching, and with GPU-like ones.
constexpr double kShareAlone = 0.1;
constexpr double kShareTogether = 0.6;

// If other workers may take some pieces, pieces that take up to this much longer count as equally
// good.
constexpr double kAsSoon = 1.02;

double QueueOf(double busy, double most) {
  busy = std::min(busy, most);
  return busy / (1 - busy);
}

}  // namespace

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

StagedScheduler::Group StagedScheduler::PartOf(const Group& group, int32_t queries) {
  const int64_t rows = int64_t{group.load.rows} * queries / group.queries;
  return {queries, {std::max(1, static_cast<int32_t>(rows)), group.load.length}};
}

StagedScheduler::Pieces StagedScheduler::BestPieces(const Pipeline& pipeline, int32_t stage,
                                                    const Group& group) const {
  Pieces best{group.queries, CostOf(pipeline, stage, group.load)};
  Duration least = best.cost;
  const double limit = options_.workers > 1 ? kAsSoon : 1;
  for (int32_t piece = group.queries; piece > 1 && best.cost > Duration(0);) {
    piece = (piece + 1) / 2;
    const int32_t last = group.queries % piece;
    const Duration one = CostOf(pipeline, stage, PartOf(group, piece).load);
    const Duration rest =
        last == 0 ? Duration(0) : CostOf(pipeline, stage, PartOf(group, last).load);
    if (one == Duration(0) || (last > 0 && rest == Duration(0))) break;
    const Duration cost = group.queries / piece * one + rest;
    if (static_cast<double>(cost.count()) < limit * static_cast<double>(least.count())) {
      best = {piece, cost};
    }
    least = std::min(least, cost);
  }
  return best;
}

Duration StagedScheduler::BestCost(const Pipeline& pipeline, int32_t first, int32_t last,
                                   const Group& group) const {
  Duration sum(0);
  for (int32_t stage = first; stage < last; ++stage) {
    const Duration own = BestPieces(pipeline, stage, group).cost;
    if (own == Duration(0)) return Duration(0);
    sum += own;
  }
  return sum;
}

int32_t StagedScheduler::PieceOf(const Pipeline& pipeline, int32_t stage,
                                 const BatchPart& part) const {
  const Batch& batch = pipeline.batches.at(part.batch);
  if (!MayDivide() || (stage == 0 && part.start == 0 && batch.starts_whole)) return part.num;
  const Load load = LoadOf(batch, part.start, part.num);
  return load.rows < 2 ? part.num : BestPieces(pipeline, stage, {part.num, load}).queries;
}

int32_t StagedScheduler::MeetAfter(const Pipeline& pipeline, int32_t stage, const BatchPart& part,
                                   int32_t piece) const {
  const Load load = LoadOf(pipeline.batches.at(part.batch), part.start, part.num);
  for (int32_t later = stage + 1; later < pipeline.table.stages(); ++later) {
    if (BestPieces(pipeline, later, {part.num, load}).queries > piece) return later - 1;
  }
  return stage;
}

double StagedScheduler::WeightOfWork(const Pipeline& pipeline, const Group& group) const {
  if (gap_ns_ == 0) return 0;
  const int32_t stages = pipeline.table.stages();
  const Load one{std::max(1, group.load.rows / group.queries), group.load.length};
  const auto alone = static_cast<double>(BestCost(pipeline, 0, stages, {1, one}).count());
  double together = alone;
  for (int32_t queries = 2; queries <= options_.max_batch_size / one.rows; queries *= 2) {
    const Group batch{queries, {queries * one.rows, one.length}};
    const auto cost = static_cast<double>(BestCost(pipeline, 0, stages, batch).count());
    together = std::min(together, cost / queries);
  }
  const double gaps = gap_ns_ * std::max(options_.workers, 1);
  return kShareAlone * QueueOf(alone / gaps, kMostAlone) +
         kShareTogether * QueueOf(together / gaps, kMostTogether);
}

// Minimises the sum of the latencies of some queries plus the delay that their work causes to later
// queries.
class StagedScheduler::BestOrder {
 public:
  BestOrder(const StagedScheduler& scheduler, const Pipeline& pipeline, const Group& group)
      : scheduler_(scheduler),
        pipeline_(pipeline),
        all_(group),
        weight_(group.queries * scheduler.WeightOfWork(pipeline, group)) {}

  // 0: some costs are unknown.
  int32_t PartAt(int32_t stage) {
    int32_t part = all_.queries;
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
  // The best way for `queries` queries to pass the stages from `stage` on.
  Order Of(int32_t stage, int32_t queries) {
    if (stage == pipeline_.table.stages() || queries == 0) return {};
    const auto [known, fresh] = orders_.try_emplace({stage, queries});
    if (!fresh) return known->second;
    const Pieces pieces = scheduler_.BestPieces(pipeline_, stage, PartOf(all_, queries));
    const auto time = static_cast<double>(pieces.cost.count());
    unknown_ = unknown_ || time == 0;
    const Order rest = Of(stage + 1, queries);
    Order best{queries * time + rest.latency, time + rest.work};
    if (queries > 1) {
      const int32_t later = queries / 2;  // they wait for the first half
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
  const Group all_;
  const double weight_;
  bool unknown_ = false;
  std::map<std::pair<int32_t, int32_t>, Order> orders_;  // by stage and queries
};

bool StagedScheduler::MayDivide() const {
  return staged_.split && !staged_.by_length && options_.stage_policy == nullptr;
}

int32_t StagedScheduler::BestPart(const Pipeline& pipeline, int32_t stage,
                                  const Group& group) const {
  if (!MayDivide() || group.load.rows < 2 || group.queries < 2) return group.queries;
  const int32_t part = BestOrder(*this, pipeline, group).PartAt(stage);
  return part == 0 ? group.queries : part;
}

bool StagedScheduler::WillSplit(const Pipeline& pipeline, const Group& group) const {
  if (!MayDivide() || group.load.rows < 2 || group.queries < 2) return false;
  BestOrder order(*this, pipeline, group);
  for (int32_t stage = 1; stage < pipeline.table.stages(); ++stage) {
    const int32_t part = order.PartAt(stage);
    if (part > 0 && part < group.queries) return true;
  }
  return false;
}

int32_t StagedScheduler::FreeWorkers() const { return std::max(options_.workers, 1) - running_; }

bool StagedScheduler::PaysToJoin(const Pipeline& pipeline, StagedBatchId id,
                                 const Group& more) const {
  const BatchTable::Row& row = pipeline.table.row(id);
  const Load old = LoadOf(pipeline.batches.at(id), 0, row.size);
  const int32_t next = row.front + 1, stages = pipeline.table.stages();
  const Group both{row.size + more.queries,
                   {old.rows + more.load.rows, std::max(old.length, more.load.length)}};
  const auto take = [&](int32_t first, int32_t last, const Group& group) {
    return static_cast<double>(BestCost(pipeline, first, last, group).count());
  };
  const double old_alone = take(next, stages, {row.size, old});
  const double more_alone = take(0, stages, more);
  const double catching_up = take(0, next, more), together = take(next, stages, both);
  if (old_alone == 0 || more_alone == 0 || catching_up == 0 || together == 0) return true;
  // The batch needs a worker too, unless one runs it already.
  const bool at_work = row.completed[static_cast<size_t>(row.front)] == 0;
  const double wait = FreeWorkers() > (at_work ? 0 : 1) ? 0 : old_alone;
  // If they follow, they share their batch with the queries that arrive until then.
  const double come = gap_ns_ == 0 ? 0 : old_alone / gap_ns_;
  const int32_t room = options_.max_batch_size / std::max(1, more.load.rows / more.queries);
  const Group company =
      PartOf(more, static_cast<int32_t>(std::clamp<double>(more.queries + come, more.queries,
                                                           std::max(more.queries, room))));
  const double share = take(0, stages, company) * more.queries / company.queries;
  const double weight = more.queries * WeightOfWork(pipeline, both);
  return (both.queries + weight) * (catching_up + together) <
         row.size * old_alone + more.queries * (wait + more_alone) + weight * (old_alone + share);
}

std::optional<TimePoint> StagedScheduler::FirstDue(const Pipeline& pipeline, StagedBatchId id,
                                                   Load old) const {
  const BatchTable::Row& row = pipeline.table.row(id);
  const TimePoint ends =
      now() + CostOfStages(pipeline, row.front + 1, pipeline.table.stages(), old);
  std::optional<TimePoint> first;
  const auto consider = [&](TimePoint due) {
    if (due >= ends && (!first || due < *first)) first = due;
  };
  for (const Slot slot : pipeline.batches.at(id).queries) {
    if (slot == kNoSlot) continue;
    const Request& query = request(slot);
    if (options_.latency_objective > Duration(0)) {
      consider(query.arrived + options_.latency_objective);
    }
    if (query.deadline) consider((*query.deadline)->first);
  }
  return first;
}

bool StagedScheduler::EndsAfter(const Pipeline& pipeline, StagedBatchId id, Load old, Load more,
                                TimePoint due) const {
  const Load both{old.rows + more.rows, std::max(old.length, more.length)};
  const int32_t next = pipeline.table.row(id).front + 1;
  const Duration catching_up = CostOfStages(pipeline, 0, next, more);
  const Duration together = CostOfStages(pipeline, next, pipeline.table.stages(), both);
  if (catching_up == Duration(0) || together == Duration(0)) return false;
  return now() + catching_up + together > due;
}

}  // namespace chairlift
