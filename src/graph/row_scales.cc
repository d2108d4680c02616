#include "graph/row_scales.h"

#include <utility>
#include <vector>

#include "graph/ragged/dynamic_scales.h"

namespace chairlift {

std::optional<Graph> WithRowScales(const Graph& graph) {
  if (graph.inputs.empty()) return std::nullopt;
  const SymbolicShape& first = graph.values[static_cast<size_t>(graph.inputs[0])].shape;
  if (!first.has_rank() || first.rank() == 0 || !first[0].is_symbol()) return std::nullopt;
  Graph copy = graph;
  // A request of one row has one entry along dimension 0, so its range is that of the whole tensor.
  if (ragged::SpreadDynamicScales(copy, "RowQuantize", first[0]) == 0) return std::nullopt;
  std::vector<bool> given(copy.values.size(), false);
  for (const ValueId id : copy.inputs) given[static_cast<size_t>(id)] = true;
  for (size_t i = 0; i < copy.values.size(); ++i) {
    Value& value = copy.values[i];
    if (given[i] || value.is_constant()) continue;
    value.shape = SymbolicShape();
    value.elements.reset();
  }
  if (!InferShapes(copy).ok()) return std::nullopt;
  return copy;
}

}  // namespace chairlift
