// Assigns the nodes of a model to cells.
#ifndef CHAIRLIFT_GRAPH_CELLS_PARTITION_H_
#define CHAIRLIFT_GRAPH_CELLS_PARTITION_H_

#include <vector>

#include "graph/cells/axes.h"
#include "graph/cells/sliced_model.h"
#include "graph/passes/rewrite.h"

namespace chairlift {

struct CellPlan {
  SlicedCell::Kind kind = SlicedCell::Kind::kLanes;
  int sequence = -1;       // for kTokens and kRecurrent
  std::vector<int> nodes;  // in order; a single node for kRecurrent
};

struct Partition {
  // By node. Free nodes depend only on sizes and constants: each cell that needs them has a copy.
  // Views only rename the contents of a row. Both belong to no cell.
  std::vector<int> cell;  // −1: none
  std::vector<bool> view;
  // By value: the value that it is a view of, or the value itself.
  std::vector<ValueId> root;
  // By value that depends on inputs: the sequence of its tokens; −1: it is a value of lanes.
  std::vector<int> sequence;
  std::vector<CellPlan> cells;  // topological order
};

StatusOr<Partition> MakePartition(const Graph& graph, const ModelAxes& axes, const Links& links);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_CELLS_PARTITION_H_
