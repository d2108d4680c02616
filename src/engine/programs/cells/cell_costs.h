// What batches of a model's cells cost on this machine, and the batch sizes that follow from it.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_COSTS_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_COSTS_H_

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "batching/policy.h"
#include "engine/costs/measure.h"
#include "engine/costs/store.h"
#include "runtime/cell.h"

namespace chairlift {

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
// within about a second.
std::vector<CellCosts> FindCellCosts(std::span<const std::unique_ptr<Cell>> cells, int workers,
                                     bool measure, const TimingProgress& progress);

// Keeps costs that were measured otherwise (by TimeCells) where FindCellCosts() finds them.
Status KeepCellCosts(std::span<const std::unique_ptr<Cell>> cells, int workers,
                     std::span<const CellCosts> costs);

// Fills in the batch sizes that `types` (by cell) leave open: where costs are known and `given` is
// 0, those that suit the costs; else `given` rows at most. Where it is 0, too, they stay open.
void ChooseCellSizes(std::span<const CellCosts> costs, int given,
                     std::vector<CellTypeOptions>& types);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_COSTS_H_
