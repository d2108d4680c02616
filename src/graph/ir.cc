#include "graph/ir.h"

#include <fmt/format.h>

namespace chairlift {

std::string Node::Describe() const {
  return fmt::format("node '{}' ({})", name, def != nullptr ? def->name : "?");
}

std::vector<std::pair<std::string, std::shared_ptr<const Graph>>> Subgraphs(const Node& node) {
  std::vector<std::pair<std::string, std::shared_ptr<const Graph>>> out;
  for (const auto& [name, value] : node.attributes.values()) {
    if (const auto* graph = std::get_if<std::shared_ptr<const Graph>>(&value)) {
      out.emplace_back(name, *graph);
    }
  }
  return out;
}

}  // namespace chairlift
