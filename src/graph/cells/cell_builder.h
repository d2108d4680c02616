// Makes the graph of one cell from the nodes of the model that belong to it.
//
// The cell's nodes are the model's own. In a token cell one of the two axes, batch or time, carries
// the rows and the other has one entry: as entries along both are proved to stay apart, every row
// comes out as it would in the whole. Views at the border put rows first.
#ifndef CHAIRLIFT_GRAPH_CELLS_CELL_BUILDER_H_
#define CHAIRLIFT_GRAPH_CELLS_CELL_BUILDER_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "graph/cells/axes.h"
#include "graph/cells/graph_writer.h"
#include "graph/cells/partition.h"

namespace chairlift {

struct SlicedGraph {
  const Graph& graph;  // lowered
  const Links& links;
  const ModelAxes& axes;
  const Partition& partition;
};

// The elements of a size as a cell's rows make it: number · rows^power, power 0 or 1.
struct LocalSize {
  int64_t number = 0;
  int power = 0;
};

// Of a kLanes or kTokens cell.
class CellBuilder {
 public:
  CellBuilder(const SlicedGraph& model, int cell);

  Status Build();
  // What the cell reads, in the order of its graph's inputs: values of the model, roots.
  const std::vector<ValueId>& inputs() const { return inputs_; }
  // Gives out a value that the cell makes.
  Status AddOutput(ValueId root);
  StatusOr<std::shared_ptr<Graph>> Finish() &&;

 private:
  const SequenceAxes* Sequence(ValueId id) const;
  bool MadeHere(ValueId root) const;
  bool CarriesLanes() const { return carried_ == Piece::Kind::kLanes; }

  // Forms as they are in this cell: rows are Kind::kLanes, time steps within a row kTokens.
  StatusOr<Form> LocalForm(ValueId id) const;
  Form RowsFirst(ValueId root, const Form& form) const;

  bool OnlyTokensEnter() const;
  int TransposesIfCarried(Piece::Kind kind) const;
  Status CollectNodes();
  bool IsConverted(ValueId id) const;
  void AddInput(ValueId root);
  StatusOr<ValueId> Get(ValueId id);
  StatusOr<ValueId> FirstRows(ValueId root);
  std::optional<std::vector<LocalSize>> LocalSizes(ValueId id) const;
  StatusOr<ValueId> MakeSizes(ValueId id, const std::vector<LocalSize>& sizes);

  const SlicedGraph& model_;
  const CellPlan& plan_;
  const int cell_;
  Piece::Kind carried_ = Piece::Kind::kLanes;  // by the rows of a token cell
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  GraphWriter writer_;
  std::set<int> nodes_;                    // of the model, that the cell has a copy of
  std::vector<ValueId> inputs_;            // of the model, as are the keys below
  std::map<ValueId, ValueId> made_;        // in the cell, in the model's form
  std::map<ValueId, ValueId> first_rows_;  // roots with their rows first
};

// The one row that a value has which follows from the batch size and constants alone.
StatusOr<Tensor> UniformRow(const SlicedGraph& model, ValueId id);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_CELLS_CELL_BUILDER_H_
