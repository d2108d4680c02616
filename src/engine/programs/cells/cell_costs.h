// What batches of a model's cells cost on this machine, and the batch sizes that follow from it.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_COSTS_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_COSTS_H_

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "batching/policy.h"
#include "chairlift/engine.h"
#include "engine/costs/measure.h"
#include "engine/costs/store.h"
#include "runtime/cell.h"

namespace chairlift {

// What the engine itself takes for a task, whatever its rows: its lock, its scheduler, memory for
// what comes out, the way to the next one. (Measured under full load: 8 to 12 µs.)
inline constexpr Duration kTaskOverhead = std::chrono::microseconds(10);

// Of one cell; empty where they are not known: its rows have dimensions that vary by request, it
// cannot run on zeros, or nobody has timed it.
using CellCosts = CostSamples;

// What `rows` rows of zeros take, by cell, as TimeRuns() measures it.
std::vector<std::optional<Duration>> TimeCells(std::span<Cell* const> cells, int64_t rows,
                                               int workers, const TimingEffort& effort,
                                               TimePoint until);

// The costs of each cell, up to the size where more rows do not
// make the machine faster. They are kept on disk (runtime/cost_table.h) by what the operators and
// shapes of the model's cells are, so that models share them whatever their weights. Where some are
// not kept, or are damaged or of another machine or build, all are measured if `measure` says so,
// within about `budget`.
std::vector<CellCosts> FindCellCosts(std::span<const std::unique_ptr<Cell>> cells, int workers,
                                     bool measure, const TimingProgress& progress,
                                     Duration budget = std::chrono::seconds(1));

// Keeps costs that were measured otherwise (by TimeCells) where FindCellCosts() finds them.
Status KeepCellCosts(std::span<const std::unique_ptr<Cell>> cells, int workers,
                     std::span<const CellCosts> costs);

// Fills in the batch sizes that `types` (by cell) leave open: where costs are known and `given` is
// 0, those that suit the costs; else `given` rows at most. Where it is 0, too, they stay open.
void ChooseCellSizes(std::span<const CellCosts> costs, int given,
                     std::vector<CellTypeOptions>& types);

// What is known of each cell, by their names, for whoever asks the model. `max_batch_size`: of
// cells that `types` leave open.
std::vector<CellBatching> CellBatchingsOf(std::span<const std::string> cells,
                                          std::span<const CellCosts> costs,
                                          std::span<const CellTypeOptions> types,
                                          int max_batch_size);
std::vector<std::string> NamesOfCells(std::span<const std::unique_ptr<Cell>> cells);

// What the steps of a model's cells take: as they were timed before or, where they were not, as the
// tasks that ran did. Open cells' are unknown.
//
// Not thread-safe: under the lock under which the model is scheduled.
class StepCosts final : public CostModel {
 public:
  // By cell.
  explicit StepCosts(std::vector<CellCosts> timed);

  const std::vector<CellCosts>& timed() const { return timed_; }

  // CostModel. 0 where it is unknown. The first types are the cells.
  Duration Cost(CellType type, int32_t rows, int32_t length) const override;
  Duration FixedCost(CellType type) const override;

  // A task took so long.
  void Learn(const Task& task, Duration took);

 private:
  // By the power of two up to which its rows go: the latest weigh most; 0: none has run.
  using Learnt = std::array<double, 31>;

  const std::vector<CellCosts> timed_;
  std::vector<Learnt> learnt_ns_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_COSTS_H_
