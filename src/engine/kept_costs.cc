#include "engine/kept_costs.h"

#include "base/status.h"
#include "graph/batch_axis.h"

namespace chairlift {

void DescribeForCosts(const Graph& graph, std::string& text) {
  const auto append = [&](ValueId id) {
    if (id == kNoValue) {
      text += " -";
      return;
    }
    const Value& value = graph.values[id];
    text += fmt::format(" {}[", DTypeName(value.dtype));
    if (!value.shape.has_rank()) text += '?';
    for (const Dim& dim : value.shape.dims()) {
      text += dim.known() ? fmt::format("{},", dim.value()) : "?,";
    }
    text += value.is_constant() ? "]c" : "]";
  };
  for (ValueId id : graph.inputs) append(id);
  for (const Node& node : graph.nodes) {
    text += fmt::format("\n{}.{}", node.def->domain, node.def->name);
    for (ValueId id : node.inputs) append(id);
    text += " ->";
    for (ValueId id : node.outputs) append(id);
    for (const auto& [name, body] : Subgraphs(node)) {
      text += " {";
      DescribeForCosts(*body, text);
      text += '}';
    }
  }
}

RowCosts KeptCosts(const CostTable::Key& key) {
  const auto table = CostTable::Load(CostTablePath(key));
  RowCosts costs;
  if (!table.ok() || table->key() != key) return costs;
  for (const auto& [shape, cost] : table->costs()) {
    if (shape.second != 0 || shape.first > kMaxBatchRows || cost <= Duration(0)) return {};
    costs.push_back({static_cast<int32_t>(shape.first), cost});
  }
  return costs;
}

Status KeepCosts(const CostTable::Key& key, const RowCosts& costs) {
  CostTable table(key);
  for (const auto& [rows, cost] : costs) table.Set(rows, 0, cost);
  return table.Save(CostTablePath(key));
}

}  // namespace chairlift
