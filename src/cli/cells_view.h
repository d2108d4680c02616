// What `inspect` shows for a model cut into cells: a table, and a diagram.
#ifndef CHAIRLIFT_CLI_CELLS_VIEW_H_
#define CHAIRLIFT_CLI_CELLS_VIEW_H_

#include <span>
#include <string>

#include "cli/cells_diagram.h"
#include "engine/programs/program.h"
#include "graph/cells/sliced_model.h"
#include "runtime/cell.h"
#include "runtime/executable.h"

namespace chairlift {

// `cells`: compiled, in the model's order.
std::string CellsTable(const SlicedModel& model, std::span<Cell* const> cells);
CellsDiagram DiagramOf(const SlicedModel& model);
// For a model that runs as a whole: one box.
CellsDiagram DiagramOfWhole(const std::string& name, const Graph& graph,
                            std::span<const SymbolicSpec> inputs,
                            std::span<const SymbolicSpec> outputs);

// For a model that generates: its step, the cache that it reads and writes, and its encoder.
CellsDiagram DiagramOfGeneration(const Graph& step, const CacheView& cache);

// "Add, MatMul, 2 Reshape"
std::string OperatorList(const Graph& graph);
// Bytes of a graph's constants.
size_t WeightBytes(const Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_CELLS_VIEW_H_
