// Carries what is known of rows through a graph, node by node.
#ifndef CHAIRLIFT_GRAPH_BATCH_AXIS_PROPAGATE_H_
#define CHAIRLIFT_GRAPH_BATCH_AXIS_PROPAGATE_H_

#include <span>
#include <string>
#include <vector>

#include "graph/batch_axis/rule.h"

namespace chairlift::batch_axis {

// The rules of operators whose result depends on data; operators of other domains than ONNX's are
// listed as "domain::name".
const RuleTable& BatchRules();

// What constants and shape inference know of integers; `symbol` names the batch dimension.
State Known(const Value& value, const std::string& symbol);

// Whether the node is integer arithmetic by which sizes may be followed, and sets the states of its
// outputs where it can be; no input may be of rows.
bool ComputesSizes(const Node& node);
Status FollowSizes(const Graph& graph, const Node& node, const std::string& symbol,
                   std::vector<State>& states);

// Sets the states of the node's outputs, or says why rows do not stay apart in it and leaves them
// as they are. No input may be mixed.
Status VisitNode(const Graph& graph, const Node& node, const RuleTable& rules,
                 const std::string& symbol, std::vector<State>& states);

// The states of all values where those of the inputs are given. What follows from a node that does
// not keep rows apart is mixed.
std::vector<State> Propagate(const Graph& graph, const RuleTable& rules, const std::string& symbol,
                             std::span<const State> inputs);

}  // namespace chairlift::batch_axis

#endif  // CHAIRLIFT_GRAPH_BATCH_AXIS_PROPAGATE_H_
