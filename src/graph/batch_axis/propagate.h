// Carries what is known of rows through a graph, node by node.
#ifndef CHAIRLIFT_GRAPH_BATCH_AXIS_PROPAGATE_H_
#define CHAIRLIFT_GRAPH_BATCH_AXIS_PROPAGATE_H_

#include <span>
#include <string>
#include <vector>

#include "graph/batch_axis/rule.h"

namespace chairlift::batch_axis {

// The rules of all operators that are known to keep rows apart; operators of other domains than
// ONNX's are listed as "domain::name".
const RuleTable& BatchRules();

// What constants and shape inference know of integers; `symbol` names the dimension along which the
// rows lie.
State Known(const Value& value, const std::string& symbol);

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
