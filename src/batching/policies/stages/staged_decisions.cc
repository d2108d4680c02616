// How large batches of staged queries are, and who joins one: by what stages cost.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "batching/policies/stages/staged_scheduler.h"

namespace chairlift {
namespace {

// Of all workers, what the queries that come can be expected to keep busy at most.
constexpr double kMostBusy = 0.9;
// Of those who come later, how many wait for a second of work, for each query that is there and
// each b / (1 − b) where the workers are busy for a share b of the time. 1 would be right if they
// came to a queue that is served one by one; as they share batches, they wait for less. Found by
// simulation, on costs in proportion to rows, on affine ones, on ones with a single stage that
// gains from company and on GPU-like ones: 0.2 to 0.3 are within 3% of the best at every load.
constexpr double kShareOfWork = 0.25;

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

}  // namespace chairlift
