// What batches of a model's cells cost on this machine, and the batch sizes that follow from it.
#ifndef CHAIRLIFT_ENGINE_CELL_COSTS_H_
#define CHAIRLIFT_ENGINE_CELL_COSTS_H_

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "batching/policy.h"
#include "batching/tabulated_costs.h"
#include "runtime/cell.h"

namespace chairlift {

// Of one cell, by rows, ascending; empty where they are not known: its rows have dimensions that
// requests tell, it cannot run on zeros, or nobody has timed it.
using CellCosts = std::vector<TabulatedCosts::Point>;

// What `rows` rows of zeros take, by cell: the fastest of several runs on one core, while
// `workers` − 1 others do the same, as they will when it counts. The cells run in turns, so that
// each finds the caches as the others' weights leave them. Spends about `at_least` on each cell; no
// round begins after `until` but the first. Absent where the cell fails.
std::vector<std::optional<Duration>> TimeCells(std::span<Cell* const> cells, int64_t rows,
                                               int workers, Duration at_least, TimePoint until);

// The costs of each cell, at the sizes at which they tell something: up to where more rows do not
// make the machine faster. They are kept on disk (runtime/cost_table.h) by what the operators and
// shapes of the model's cells are, so that models share them whatever their weights. Where some are
// not kept, or are damaged or of another machine or build, all are measured if `measure` says so,
// within about a second.
std::vector<CellCosts> FindCellCosts(std::span<const std::unique_ptr<Cell>> cells, int workers,
                                     bool measure);

// Keeps costs that were measured otherwise (by TimeCells) where FindCellCosts() finds them.
Status KeepCellCosts(std::span<const std::unique_ptr<Cell>> cells, int workers,
                     std::span<const CellCosts> costs);

// Fills in the batch sizes that `types` (by cell) leave open: where costs are known and `given` is
// 0, those that suit the costs; else `given` rows at most. Where it is 0, too, they stay open.
void ChooseCellSizes(std::span<const CellCosts> costs, int given,
                     std::vector<CellTypeOptions>& types);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_CELL_COSTS_H_
