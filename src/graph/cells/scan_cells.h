// A Scan cut into cells: what its body makes of a step's input alone, and the step.
#ifndef CHAIRLIFT_GRAPH_CELLS_SCAN_CELLS_H_
#define CHAIRLIFT_GRAPH_CELLS_SCAN_CELLS_H_

#include <memory>
#include <vector>

#include "graph/cells/cell_builder.h"
#include "graph/cells/sliced_model.h"

namespace chairlift {

// Graphs with their rows along dimension 0. Numbers name sequences, states and captures as the node
// has them among its inputs.
struct ScanCells {
  // Where the body multiplies matrices before it looks at its states; else null.
  std::shared_ptr<Graph> projection;
  std::vector<int> projection_inputs;  // sequences
  std::vector<CellValue> projected;    // its outputs; lengths and axes are not set

  // Inputs: some sequences, then what is projected, then all states, then captures, which a step
  // hands on to the next as it does states.
  std::shared_ptr<Graph> step;
  std::vector<int> step_inputs;    // sequences
  std::vector<int> captures;       // inputs of the node
  std::vector<int> state_outputs;  // of the graph, by state and capture
  std::vector<int> token_outputs;  // of the graph, by the node's outputs after its states
};

StatusOr<ScanCells> CutScan(const SlicedGraph& model, const Node& node);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_CELLS_SCAN_CELLS_H_
