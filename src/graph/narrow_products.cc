#include "graph/narrow_products.h"

#include <memory>
#include <string_view>
#include <utility>

#include "ops/linear/product.h"

namespace chairlift {
namespace {

bool RoundableProduct(const Graph& graph, const Node& node) {
  const std::string_view name = node.def->name;
  const bool several = name == "ParallelMatMul";
  if (!several && name != "MatMul" && name != "Gemm" && name != "FusedMatMul") return false;
  for (size_t i = 1; i < (several ? node.inputs.size() : 2); i += 2) {
    const Value& b = graph.values[static_cast<size_t>(node.inputs[i])];
    if (b.dtype != DType::kFloat || !b.is_constant()) return false;
  }
  return true;
}

}  // namespace

int MarkNarrowProducts(Graph& graph, DType type) {
  int marked = 0;
  for (Node& node : graph.nodes) {
    if (RoundableProduct(graph, node)) {
      node.attributes.Set(type == DType::kInt8 ? kInt8Attribute : kBFloat16Attribute, int64_t{1});
      ++marked;
    }
    for (const auto& [name, body] : Subgraphs(node)) {
      Graph inside = *body;
      const int there = MarkNarrowProducts(inside, type);
      if (there == 0) continue;
      marked += there;
      node.attributes.Set(name, std::make_shared<const Graph>(std::move(inside)));
    }
  }
  return marked;
}

}  // namespace chairlift
