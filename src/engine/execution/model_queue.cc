#include "engine/execution/model_queue.h"

#include <algorithm>

#include "base/memory_reserve.h"

namespace chairlift {
namespace {

// Longer than any request waits, but small enough that sums over all models do not overflow.
constexpr Duration kLongest = std::chrono::hours(24);

// What an expected request counts before any request with a known cost has come: enough that a
// burst to an unused model does not fill its queue far beyond its bound.
constexpr Duration kUnknown = std::chrono::milliseconds(100);

}  // namespace

ModelQueue::ModelQueue(Program& program, std::unique_ptr<Scheduler> scheduler)
    : lanes(program.lanes()), program_(program), scheduler_(std::move(scheduler)) {
  const MemoryReserve::Use use;
  for (WorkerId lane = lanes.tasks - 1; lane >= 0; --lane) free_lanes.push_back(lane);
  for (int cell = 0; cell < program.num_cells(); ++cell) {
    free_[cell].push_back(static_cast<CellType>(types_.size()));
    types_.emplace_back().cell = cell;
  }
}

CellType ModelQueue::HoldType(int cell, std::span<const int64_t> key) {
  const auto [it, fresh] = by_key_.try_emplace({cell, Key(key.begin(), key.end())}, 0);
  if (fresh) {
    std::vector<CellType>& free = free_[cell];
    if (free.empty()) {
      it->second = static_cast<CellType>(types_.size());
      types_.emplace_back();
    } else {
      it->second = free.back();
      free.pop_back();
    }
    types_[it->second].cell = cell;
    types_[it->second].key = it->first.second;
  }
  ++types_[it->second].holders;
  return it->second;
}

void ModelQueue::ReleaseType(CellType index) {
  Type& type = types_[index];
  if (--type.holders > 0) return;
  by_key_.erase({type.cell, type.key});
  free_[type.cell].push_back(index);
}

Duration ModelQueue::ToCome() const {
  const Duration known = typical.load();
  const auto one = static_cast<double>((known > Duration(0) ? known : kUnknown).count());
  const double all = one * static_cast<double>(coming + unfolding);
  if (all >= static_cast<double>(kLongest.count())) return kLongest;
  return Duration(static_cast<int64_t>(all));
}

Duration ModelQueue::Backlog() const { return std::min(work.load() + ToCome(), kLongest); }

double ModelQueue::Before(int64_t times) const {
  if (!scheduler_->takes_turns()) return 1;
  const auto all = static_cast<double>(present + coming);
  const double before = static_cast<double>(turns) * static_cast<double>(times);
  return before < all ? before / all : 1;
}

Duration ModelQueue::ExpectedCost(const Task& task) const {
  const Type& type = types_[task.type];
  const Duration known = program_.Cost(type.cell, task);
  return known > Duration(0) ? known : type.mean_cost;
}

void ModelQueue::ExpectUnits(CellType type) {
  if (queue_time_.Knows(type)) return;
  const double each = program_.UnitCostNs(types_[type].cell);
  if (each > 0) queue_time_.Expect(type, each);
}

void ModelQueue::Learn(const Task& task, bool helped, Duration cost) {
  program_.Learn(task, helped, cost);
  Duration& mean = types_[task.type].mean_cost;
  mean = (3 * mean + cost) / 4;
  batch_time_.Learn(cost);
  batch_time = batch_time_.time();
}

}  // namespace chairlift
