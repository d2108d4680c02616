// An assignment to all of a tensor, as TorchScript's exporter writes one to a slice (`mask[:, :, :,
// :n] = …`): ScatterND at indices that it computes from ranges.
#include "graph/analysis/pattern.h"

namespace chairlift::analysis {

// Numbers side by side in the last dimension, each of which may depend on the other axes; nothing
// if the inputs have another form.
std::optional<Pattern> PatternReader::ConcatTuples(const Node& node) const {
  Pattern tuples;
  tuples.kind = Pattern::Kind::kTuples;
  tuples.dtype = TypeOf(node);
  if (!IsInteger(tuples.dtype)) return std::nullopt;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Pattern input = In(node, i);
    const auto line = input.known() ? input.AsLine() : std::nullopt;
    const int64_t axis = node.attributes.Int("axis", 0);
    if (!line || input.rank() < 2 || input.dims.back() != Line::Number(1) ||
        (axis != -1 && axis != input.rank() - 1)) {
      return std::nullopt;
    }
    if (i == 0) tuples.dims = input.dims;
    if (input.dims != tuples.dims) return std::nullopt;
    tuples.list.push_back(*line);
  }
  tuples.dims.back() = Line::Number(static_cast<int64_t>(tuples.list.size()));
  return tuples;
}

// If each element is written exactly once, at its own position: the updates.
StatusOr<Pattern> PatternReader::ScatterND(const Node& node) {
  const Pattern& places = of(node.inputs[1]);
  const Pattern updates = In(node, 2);
  const auto dims = DimsOf(node.inputs[0]);
  if (places.kind != Pattern::Kind::kTuples || !updates.known() ||
      updates.kind == Pattern::Kind::kList || !dims || updates.dims != *dims ||
      places.list.size() != dims->size() || node.attributes.String("reduction", "none") != "none") {
    return Unimplemented("where it writes is not followed");
  }
  const std::vector<Line> written(places.dims.begin(), places.dims.end() - 1);
  for (int axis = 0; axis < updates.rank(); ++axis) {
    const auto apart = Line::Sum(places.list[static_cast<size_t>(axis)], Line::Index(axis), -1);
    if (written != *dims || !apart || apart->Least(*dims) != 0 || apart->Most(*dims) != 0) {
      return Unimplemented("it is not known to write all, each at its place");
    }
  }
  return updates;
}

}  // namespace chairlift::analysis
