// Propagates the knowledge about rows through a graph, node by node.
#ifndef CHAIRLIFT_GRAPH_BATCH_AXIS_PROPAGATE_H_
#define CHAIRLIFT_GRAPH_BATCH_AXIS_PROPAGATE_H_

#include <span>
#include <string>
#include <vector>

#include "graph/batch_axis/rule.h"

namespace chairlift::batch_axis {

// The rules of operators whose result depends on data. Operators of other domains than ONNX's are
// listed as "domain::name".
const RuleTable& BatchRules();

// What constants and shape inference tell about integers; `symbol` names the batch dimension.
State Known(const Value& value, const std::string& symbol);

// For integers computed from sizes: sets the states of the node's output if its elements can be
// followed. No input may be rows.
Status FollowSizes(const Graph& graph, const Node& node, const std::string& symbol,
                   std::vector<State>& states);

// Sets the states of the node's outputs. If it does not keep rows apart, returns an error with the
// reason and leaves them unchanged. No input may be mixed.
Status VisitNode(const Graph& graph, const Node& node, const RuleTable& rules,
                 const std::string& symbol, std::vector<State>& states);

// The states of all values, given those of the inputs. Results of a node that does not keep rows
// apart are mixed.
std::vector<State> Propagate(const Graph& graph, const RuleTable& rules, const std::string& symbol,
                             std::span<const State> inputs);

}  // namespace chairlift::batch_axis

#endif  // CHAIRLIFT_GRAPH_BATCH_AXIS_PROPAGATE_H_
