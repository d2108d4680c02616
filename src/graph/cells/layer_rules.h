// The rules by which rows stay apart in what runs step by step: recurrent layers and Scan.
#ifndef CHAIRLIFT_GRAPH_CELLS_LAYER_RULES_H_
#define CHAIRLIFT_GRAPH_CELLS_LAYER_RULES_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/batch_axis/rule.h"

namespace chairlift {

// All rules of batch_axis, and those of layers where rows are lanes, or time steps.
const batch_axis::RuleTable& LaneRules();
const batch_axis::RuleTable& TimeRules();

// Rows one by one along the axis.
bool WholeAxis(const batch_axis::State& state, int axis);

// A Scan by its parts. Node inputs: states, then sequences, then captures.
struct ScanParts {
  std::shared_ptr<const Graph> body;
  int states = 0;
  int sequences = 0;
  int captures = 0;
  std::vector<int> input_axes;   // of each sequence
  std::vector<int> output_axes;  // of each output that is not a state
  bool one_direction = false;    // all inputs and outputs run the same way
  bool reverse = false;          // from the end
};
// Nothing for other nodes, and where ranks are not known.
std::optional<ScanParts> PartsOfScan(const Graph& graph, const Node& node);

// What is known of the body's values, from what is known of those around the node.
std::vector<batch_axis::State> BodyStates(const ScanParts& scan, const Graph& body,
                                          const Node& node, const std::string& symbol,
                                          const std::vector<batch_axis::State>& states);

// The input along which a layer runs (of several, the first), and its time axis; node must be a
// RecurrentLayer or a Scan.
struct LayerInput {
  int input = 0;
  int time_axis = 0;
};
std::optional<LayerInput> InputOfLayer(const Graph& graph, const Node& node);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_CELLS_LAYER_RULES_H_
