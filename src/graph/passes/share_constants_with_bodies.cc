// Copies constants that bodies of If, Loop and Scan capture into the bodies, so that they can be
// folded and packed there.
#include <memory>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

StatusOr<int> RunShareConstantsWithBodies(Graph& graph, std::vector<std::string>&) {
  int count = 0;
  for (Node& node : graph.nodes) {
    const auto bodies = Subgraphs(node);
    size_t captures = 0;
    for (const auto& [name, body] : bodies) captures += body->num_captures;
    std::vector<ValueId> inputs(node.inputs.begin(), node.inputs.end() - captures);
    size_t at = inputs.size();
    for (const auto& [name, body] : bodies) {
      auto copy = std::make_shared<Graph>(*body);
      copy->inputs.resize(body->num_formal_inputs());
      copy->num_captures = 0;
      for (int i = body->num_formal_inputs(); i < static_cast<int>(body->inputs.size()); ++i) {
        const ValueId outer = node.inputs[at++];
        const ValueId inner = body->inputs[i];
        if (graph.values[outer].is_constant()) {
          Value& value = copy->values[inner];
          value.constant = graph.values[outer].constant;
          value.dtype = value.constant.dtype();
          value.shape = SymbolicShape(value.constant.shape());
          value.elements.reset();
          continue;
        }
        copy->inputs.push_back(inner);
        ++copy->num_captures;
        inputs.push_back(outer);
      }
      if (copy->num_captures == body->num_captures) continue;
      count += body->num_captures - copy->num_captures;
      node.attributes.Set(name, std::shared_ptr<const Graph>(std::move(copy)));
    }
    node.inputs = std::move(inputs);
  }
  return count;
}

}  // namespace

Pass ShareConstantsWithBodies() {
  return {"share_constants_with_bodies", "give bodies of control flow the constants they capture",
          RunShareConstantsWithBodies};
}

}  // namespace chairlift
