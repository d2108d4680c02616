#include "graph/analysis/node_reader.h"

#include <fmt/format.h>

#include <algorithm>

namespace chairlift::analysis {
namespace {

std::optional<int64_t> NumberAt(const Dims* elements, size_t i) {
  if (elements == nullptr || !(*elements)[i].is_number()) return std::nullopt;
  return (*elements)[i].number;
}

}  // namespace

StatusOr<int> NodeReader::Rank(int i) const {
  if (!has(i)) return Unimplemented("its input {} is absent", i);
  const SymbolicShape shape = ShapeOf(i);
  if (!shape.has_rank()) return Unimplemented("the rank of its input {} is not known", i);
  return shape.rank();
}

StatusOr<int> NodeReader::OutputRank(int i) const {
  const ValueId output = node_.outputs[static_cast<size_t>(i)];
  if (output == kNoValue) return Unimplemented("its output {} is not used", i);
  const SymbolicShape& shape = graph_.values[static_cast<size_t>(output)].shape;
  if (!shape.has_rank()) return Unimplemented("the rank of its output is not known");
  return shape.rank();
}

StatusOr<int> NodeReader::Axis(int64_t axis, int rank) {
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) return Unimplemented("its axis is out of range");
  return static_cast<int>(axis);
}

StatusOr<int> NodeReader::OwnAxis(int64_t fallback) const {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, Rank(0));
  return Axis(attributes().Int("axis", fallback), rank);
}

StatusOr<std::vector<int64_t>> NodeReader::Numbers(int i) const {
  const Dims* elements = Elements(i);
  if (elements == nullptr) return Unimplemented("its input {} is not a constant", i);
  std::vector<int64_t> numbers;
  for (const Line& e : *elements) {
    if (!e.is_number()) return Unimplemented("its input {} is not a constant", i);
    numbers.push_back(e.number);
  }
  return numbers;
}

StatusOr<AxisMap> NodeReader::Axes() const {
  if (node_.def->axes == nullptr) return Unimplemented("nothing is known of its axes");
  std::vector<ValueInfo> inputs(node_.inputs.size());
  for (int i = 0; i < num_inputs(); ++i) {
    if (!has(i)) continue;
    const Value& value = graph_.values[static_cast<size_t>(id(i))];
    ValueInfo& info = inputs[static_cast<size_t>(i)];
    info.dtype = value.dtype;
    info.shape = ShapeOf(i);
    if (value.is_constant()) info.value = &value.constant;
    const Dims* elements = Elements(i);
    if (elements == nullptr) continue;
    info.elements.emplace();
    for (const Line& e : *elements) {
      info.elements->push_back(e.is_number() ? Dim(e.number) : Dim::Unknown());
    }
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(AxisMap map,
                             node_.def->axes(InferContext(attributes(), inputs, num_outputs())));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const SymbolicShape& shape = inputs[i].shape;
    const std::vector<int>& labels = map.inputs[i].labels;
    for (size_t axis = 0; axis < labels.size(); ++axis) {
      if (labels[axis] == AxisMap::kNone || !shape.has_rank() ||
          static_cast<int>(axis) < shape.rank()) {
        continue;
      }
      return Unimplemented("its input {} has shape {}, without dimension {}", i, shape.ToString(),
                           axis);
    }
  }
  return map;
}

StatusOr<std::vector<NodeReader::Cut>> NodeReader::Cuts() const {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, Rank(0));
  const Dims* starts = Elements(1);
  const Dims* ends = Elements(2);
  const Dims* steps = Elements(4);
  std::vector<int64_t> axes;
  if (has(3)) {
    CHAIRLIFT_ASSIGN_OR_RETURN(axes, Numbers(3));
  } else {
    CHAIRLIFT_ASSIGN_OR_RETURN(const Dims count, DimsOf(1));
    if (count.size() != 1 || !count[0].is_number() || count[0].number > rank) {
      return Unimplemented("its axes are not known");
    }
    for (int64_t i = 0; i < count[0].number; ++i) axes.push_back(i);
  }
  for (const Dims* given : {starts, ends, steps}) {
    if (given != nullptr && given->size() != axes.size()) {
      return Unimplemented("its starts, ends, axes and steps do not match");
    }
  }
  std::vector<Cut> cuts;
  for (size_t i = 0; i < axes.size(); ++i) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, Axis(axes[i], rank));
    cuts.push_back({axis, starts == nullptr ? std::nullopt : std::optional((*starts)[i]),
                    ends == nullptr ? std::nullopt : std::optional((*ends)[i]),
                    has(4) ? NumberAt(steps, i) : std::optional(int64_t{1})});
  }
  return cuts;
}

}  // namespace chairlift::analysis
