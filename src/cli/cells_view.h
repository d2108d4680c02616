// What `inspect` shows of a model cut into cells: a table, and a diagram.
#ifndef CHAIRLIFT_CLI_CELLS_VIEW_H_
#define CHAIRLIFT_CLI_CELLS_VIEW_H_

#include <string>
#include <vector>

#include "graph/cells/sliced_model.h"

namespace chairlift {

std::string CellsTable(const SlicedModel& model);
std::string CellsDot(const SlicedModel& model);  // for graphviz
std::string CellsSvg(const SlicedModel& model);

// The values that a cell reads and gives as a whole, states included.
std::vector<int> CellReads(const SlicedCell& cell);
std::vector<int> CellGives(const SlicedCell& cell);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_CELLS_VIEW_H_
