// What `inspect` shows of a model cut into cells: a table, and a diagram.
#ifndef CHAIRLIFT_CLI_CELLS_VIEW_H_
#define CHAIRLIFT_CLI_CELLS_VIEW_H_

#include <string>

#include "cli/cells_diagram.h"
#include "graph/cells/sliced_model.h"

namespace chairlift {

std::string CellsTable(const SlicedModel& model);
CellsDiagram DiagramOf(const SlicedModel& model);

// "Add, MatMul, 2 Reshape"
std::string OperatorList(const Graph& graph);
// Bytes of a graph's constants.
size_t WeightBytes(const Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_CELLS_VIEW_H_
