// Cell inputs that the graph only concatenates row by row, such as the states of a tree's children.
// They are gathered directly into place instead of being gathered and then joined.
#ifndef CHAIRLIFT_RUNTIME_JOINED_ROWS_H_
#define CHAIRLIFT_RUNTIME_JOINED_ROWS_H_

#include <vector>

#include "graph/ir.h"

namespace chairlift {

// For a graph with inferred shapes whose inputs have rows along dimension 0. The result of each
// Concat of such inputs with known rows becomes an input, in place of the first of them. Returns,
// for each new input, the original numbers of the inputs that it consists of.
std::vector<std::vector<int>> JoinRows(Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_JOINED_ROWS_H_
