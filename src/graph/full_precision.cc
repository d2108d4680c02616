#include "graph/full_precision.h"

#include <memory>
#include <utility>

namespace chairlift {

std::optional<Graph> InFullPrecision(const Graph& graph) {
  std::optional<Graph> full;
  const auto node = [&](size_t n) -> Node& {
    if (!full) full = graph;
    return full->nodes[n];
  };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& original = graph.nodes[n];
    if (original.attributes.Int("accuracy_level", 0) == 4) {
      node(n).attributes.Erase("accuracy_level");
    }
    for (const auto& [name, body] : Subgraphs(original)) {
      std::optional<Graph> inside = InFullPrecision(*body);
      if (!inside) continue;
      node(n).attributes.Set(name, std::make_shared<const Graph>(*std::move(inside)));
    }
  }
  return full;
}

}  // namespace chairlift
