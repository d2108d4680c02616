// Builds the graph of one cell from the model's nodes that belong to it.
//
// The cell's nodes are copies of the model's. In a token cell, one of the two axes, batch or time,
// holds the rows and the other has one entry. Because entries along both are proved independent,
// every row has the same result as in the whole model. Views at the border move rows to the front.
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

// The elements of a size in terms of a cell's rows: number · rows^power, power 0 or 1.
struct LocalSize {
  int64_t number = 0;
  int power = 0;
};

// For a kLanes or kTokens cell.
class CellBuilder {
 public:
  CellBuilder(const SlicedGraph& model, int cell);

  Status Build();
  // The values (roots) of the model that the cell reads, in the order of its graph's inputs.
  const std::vector<ValueId>& inputs() const { return inputs_; }
  // Makes a value of the cell an output.
  Status AddOutput(ValueId root);
  StatusOr<std::shared_ptr<Graph>> Finish() &&;

 private:
  const SequenceAxes* Sequence(ValueId id) const;
  bool MadeHere(ValueId root) const;
  bool CarriesLanes() const { return carried_ == Piece::Kind::kLanes; }

  // Forms within this cell: rows are Kind::kLanes, time steps within a row kTokens.
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
  Piece::Kind carried_ = Piece::Kind::kLanes;  // what the rows of a token cell stand for
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  GraphWriter writer_;
  std::set<int> nodes_;                    // nodes of the model that the cell has a copy of
  std::vector<ValueId> inputs_;            // values of the model, as are the keys below
  std::map<ValueId, ValueId> made_;        // the cell's value in the model's form
  std::map<ValueId, ValueId> first_rows_;  // roots with rows in front
};

// The single row of a value that depends only on the batch size and constants.
StatusOr<Tensor> UniformRow(const SlicedGraph& model, ValueId id);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_CELLS_CELL_BUILDER_H_
