// Rules for row independence in recurrent layers and Scan.
#ifndef CHAIRLIFT_GRAPH_CELLS_LAYER_RULES_H_
#define CHAIRLIFT_GRAPH_CELLS_LAYER_RULES_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/batch_axis/rule.h"

namespace chairlift {

// All rules of batch_axis, and rules for layers whose rows are lanes or time steps.
const batch_axis::RuleTable& LaneRules();
const batch_axis::RuleTable& TimeRules();

// Whether each entry of the axis is one row.
bool WholeAxis(const batch_axis::State& state, int axis);

// The parts of a Scan. Node inputs: states, then sequences, then captures.
struct ScanParts {
  std::shared_ptr<const Graph> body;
  int states = 0;
  int sequences = 0;
  int captures = 0;
  std::vector<int> input_axes;   // of each sequence
  std::vector<int> output_axes;  // of each output except states
  bool one_direction = false;    // all inputs and outputs have the same direction
  bool reverse = false;          // starting at the end
};
// Nothing for other nodes, or if ranks are unknown.
std::optional<ScanParts> PartsOfScan(const Graph& graph, const Node& node);

// The states of the body's values, from the states of the values around the node.
std::vector<batch_axis::State> BodyStates(const ScanParts& scan, const Graph& body,
                                          const Node& node, const std::string& symbol,
                                          const std::vector<batch_axis::State>& states);

// The input along which a layer runs (the first of several), and its time axis. The node must be a
// RecurrentLayer or a Scan.
struct LayerInput {
  int input = 0;
  int time_axis = 0;
};
std::optional<LayerInput> InputOfLayer(const Graph& graph, const Node& node);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_CELLS_LAYER_RULES_H_
