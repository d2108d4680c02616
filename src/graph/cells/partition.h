// Which nodes of a model make up which cell.
#ifndef CHAIRLIFT_GRAPH_CELLS_PARTITION_H_
#define CHAIRLIFT_GRAPH_CELLS_PARTITION_H_

#include <vector>

#include "graph/cells/axes.h"
#include "graph/cells/sliced_model.h"
#include "graph/passes/rewrite.h"

namespace chairlift {

struct CellPlan {
  SlicedCell::Kind kind = SlicedCell::Kind::kLanes;
  int sequence = -1;       // of kTokens and kRecurrent
  std::vector<int> nodes;  // in order; one of kRecurrent
};

struct Partition {
  // By node. Free nodes follow from sizes and constants alone: each cell that needs them has its
  // own. Views only rename what a row holds. Both belong to no cell.
  std::vector<int> cell;  // −1: none
  std::vector<bool> view;
  // By value: the value that it is a view of, or itself.
  std::vector<ValueId> root;
  // By value that depends on inputs: the sequence whose tokens it has, or −1: a lane's.
  std::vector<int> sequence;
  std::vector<CellPlan> cells;  // topological order
};

StatusOr<Partition> MakePartition(const Graph& graph, const ModelAxes& axes, const Links& links);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_CELLS_PARTITION_H_
