// Inputs of a cell that its graph does nothing with but put their rows side by side, as the states
// of a tree's children: gathered where they are to be, instead of gathered and then joined.
#ifndef CHAIRLIFT_RUNTIME_JOINED_ROWS_H_
#define CHAIRLIFT_RUNTIME_JOINED_ROWS_H_

#include <vector>

#include "graph/ir.h"

namespace chairlift {

// Of a graph whose inputs have their rows along dimension 0 and whose shapes are inferred: makes
// the result of each Concat of such inputs, of known rows, an input in place of the first of them.
// Returns, for each input that there is then, the inputs that it is made of, as they were numbered.
std::vector<std::vector<int>> JoinRows(Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_JOINED_ROWS_H_
