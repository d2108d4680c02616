// Costs of batches of a model's cells on this machine, and the batch sizes that follow from them.
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

// The engine's own time per task, for any number of rows: lock, scheduler, memory for outputs,
// finding the next task. (Measured under full load: 8 to 12 µs.)
inline constexpr Duration kTaskOverhead = std::chrono::microseconds(10);

// For one cell. Empty if unknown: its rows have dimensions that vary by request, it cannot run on
// zeros, or it was not timed.
using CellCosts = CostSamples;

// The time of `rows` rows of zeros, by cell, as measured by TimeRuns().
std::vector<std::optional<Duration>> TimeCells(std::span<Cell* const> cells, int64_t rows,
                                               int workers, const TimingEffort& effort,
                                               TimePoint until);

// The costs of each cell, up to the size from which more rows do not improve throughput. They are
// kept on disk (runtime/cost_table.h) under the operators and shapes of the model's cells, so that
// models that differ only in weights share them. If some are not kept, or are damaged or from
// another machine or build, all are measured if `measure` is true, within about `budget`.
std::vector<CellCosts> FindCellCosts(std::span<const std::unique_ptr<Cell>> cells, int workers,
                                     bool measure, const TimingProgress& progress,
                                     Duration budget = std::chrono::seconds(1));

// Saves costs that were measured in another way (by TimeCells) where FindCellCosts() finds them.
Status KeepCellCosts(std::span<const std::unique_ptr<Cell>> cells, int workers,
                     std::span<const CellCosts> costs);

// Sets the batch sizes that `types` (by cell) leave open. If costs are known and `given` is 0, they
// follow from the costs; otherwise they are at most `given` rows. If that is also 0, they stay
// open.
void ChooseCellSizes(std::span<const CellCosts> costs, int given,
                     std::vector<CellTypeOptions>& types);

// What is known about each cell, by name, for the model's metadata. `max_batch_size`: for cells
// that `types` leave open.
std::vector<CellBatching> CellBatchingsOf(std::span<const std::string> cells,
                                          std::span<const CellCosts> costs,
                                          std::span<const CellTypeOptions> types,
                                          int max_batch_size);
std::vector<std::string> NamesOfCells(std::span<const std::unique_ptr<Cell>> cells);

// Costs of steps of a model's cells: as timed before or, if they were not, as observed in tasks.
// Costs of open cells are unknown.
//
// Not thread-safe: used under the lock that the model is scheduled under.
class StepCosts final : public CostModel {
 public:
  // By cell.
  explicit StepCosts(std::vector<CellCosts> timed);

  const std::vector<CellCosts>& timed() const { return timed_; }

  // CostModel. 0 if unknown. The first types are the cells.
  Duration Cost(CellType type, int32_t rows, int32_t length) const override;
  Duration FixedCost(CellType type) const override;

  // A task took `took`.
  void Learn(const Task& task, Duration took);

 private:
  // By the power of two above its rows; recent tasks weigh most; 0: none has run.
  using Learnt = std::array<double, 31>;

  const std::vector<CellCosts> timed_;
  std::vector<Learnt> learnt_ns_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_COSTS_H_
