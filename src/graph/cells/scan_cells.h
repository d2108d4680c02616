// Cuts a Scan into cells: the part of its body that depends only on a step's input, and the step.
#ifndef CHAIRLIFT_GRAPH_CELLS_SCAN_CELLS_H_
#define CHAIRLIFT_GRAPH_CELLS_SCAN_CELLS_H_

#include <memory>
#include <vector>

#include "graph/cells/cell_builder.h"
#include "graph/cells/sliced_model.h"

namespace chairlift {

// Graphs with rows along dimension 0. Indices of sequences, states and captures are those of the
// node's inputs.
struct ScanCells {
  // If the body multiplies matrices before it reads its states; else null.
  std::shared_ptr<Graph> projection;
  std::vector<int> projection_inputs;  // sequences
  std::vector<CellValue> projected;    // its outputs, without lengths and axes

  // Inputs: some sequences, then projected values, then all states, then captures, which a step
  // passes to the next like states.
  std::shared_ptr<Graph> step;
  std::vector<int> step_inputs;    // sequences
  std::vector<int> captures;       // inputs of the node
  std::vector<int> state_outputs;  // of the graph, by state and capture
  std::vector<int> token_outputs;  // of the graph, by the node's outputs after the states
};

StatusOr<ScanCells> CutScan(const SlicedGraph& model, const Node& node);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_CELLS_SCAN_CELLS_H_
