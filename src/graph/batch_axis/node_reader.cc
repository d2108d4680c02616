#include "graph/batch_axis/node_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace chairlift::batch_axis {
namespace {

std::optional<int64_t> NumberAt(const std::vector<Extent>* elements, size_t i) {
  if (elements == nullptr || !(*elements)[i].is_number()) return std::nullopt;
  return (*elements)[i].number();
}

}  // namespace

StatusOr<int> NodeReader::Rank(int i) const {
  if (!has(i)) return Unimplemented("its input {} is absent", i);
  const SymbolicShape& shape = graph_.values[static_cast<size_t>(id(i))].shape;
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
  const std::vector<Extent>* elements = Elements(i);
  if (elements == nullptr) return Unimplemented("its input {} is not a constant", i);
  std::vector<int64_t> numbers;
  for (const Extent& e : *elements) {
    if (!e.is_number()) return Unimplemented("its input {} is not a constant", i);
    numbers.push_back(e.number());
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
    info.shape = value.shape;
    if (value.is_constant()) info.value = &value.constant;
    const std::vector<Extent>* elements = Elements(i);
    if (elements == nullptr) continue;
    info.elements.emplace();
    for (const Extent& e : *elements) {
      info.elements->push_back(e.is_number() ? Dim(e.number()) : Dim::Unknown());
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
  const std::vector<Extent>* starts = Elements(1);
  const std::vector<Extent>* ends = Elements(2);
  const std::vector<Extent>* steps = Elements(4);
  std::vector<int64_t> axes;
  if (has(3)) {
    CHAIRLIFT_ASSIGN_OR_RETURN(axes, Numbers(3));
  } else {
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> count, Dims(1));
    if (count.size() != 1 || !count[0].is_number() || count[0].number() > rank) {
      return Unimplemented("its axes are not known");
    }
    for (int64_t i = 0; i < count[0].number(); ++i) axes.push_back(i);
  }
  for (const std::vector<Extent>* given : {starts, ends, steps}) {
    if (given != nullptr && given->size() != axes.size()) {
      return Unimplemented("its starts, ends, axes and steps do not match");
    }
  }
  std::vector<Cut> cuts;
  for (size_t i = 0; i < axes.size(); ++i) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, Axis(axes[i], rank));
    cuts.push_back({axis, NumberAt(starts, i),
                    ends == nullptr ? std::nullopt : std::optional((*ends)[i]),
                    has(4) ? NumberAt(steps, i) : std::optional(int64_t{1})});
  }
  return cuts;
}

StatusOr<NodeReader::WantedShape> NodeReader::Wanted(const std::vector<Extent>& from) const {
  const std::vector<Extent>* given = Elements(1);
  if (given == nullptr) return Unimplemented("the shape it is given cannot be followed");
  const bool allow_zero = attributes().Int("allowzero", 0) != 0;
  WantedShape wanted{.dims = *given, .deduced = {}, .known = {}};
  for (size_t i = 0; i < wanted.dims.size(); ++i) {
    Extent& dim = wanted.dims[i];
    if (dim == Extent::Number(0) && !allow_zero) {
      if (i >= from.size()) return Unimplemented("its shape copies a dimension that is not there");
      dim = from[i];
    }
    if (dim == Extent::Number(-1)) {
      if (wanted.deduced) return Unimplemented("its shape leaves two dimensions open");
      wanted.deduced = i;
      continue;
    }
    const std::optional<Extent> product = Extent::Product(wanted.known, dim);
    if (!product) return Unimplemented("its sizes are too large");
    wanted.known = *product;
  }
  return wanted;
}

void NodeReader::NameAsInput(const Extent& total, WantedShape& wanted) {
  if (wanted.deduced || wanted.known == total) return;
  for (Extent& dim : wanted.dims) {
    const auto rest = dim.has_symbols() ? Extent::Quotient(wanted.known, dim) : std::nullopt;
    if (!rest || rest->has_symbols() || rest->number() < 1) continue;
    if (const auto own = Extent::Quotient(total, *rest)) {
      dim = *own;
      wanted.known = total;
    }
    return;
  }
}

StatusOr<std::vector<Extent>> NodeReader::Flattened(const std::vector<Extent>& from) const {
  const auto rank = static_cast<int64_t>(from.size());
  int64_t axis = attributes().Int("axis", 1);
  if (axis < 0) axis += rank;
  if (axis < 0 || axis > rank) return Unimplemented("its axis is out of range");
  const std::span<const Extent> dims(from);
  const std::optional<Extent> left = Extent::Product(dims.first(static_cast<size_t>(axis)));
  const std::optional<Extent> right = Extent::Product(dims.subspan(static_cast<size_t>(axis)));
  if (!left || !right) return Unimplemented("its sizes are too large");
  return std::vector<Extent>{*left, *right};
}

std::pair<int64_t, int64_t> ShapeRange(const Attributes& attributes, int64_t rank) {
  const auto hold = [rank](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank);
  };
  const int64_t start = hold(attributes.Int("start", 0));
  return {start, std::max(start, hold(attributes.Int("end", rank)))};
}

std::string ToString(const std::vector<Extent>& dims) {
  std::string text;
  for (const Extent& dim : dims) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", dim.ToString());
  }
  return fmt::format("[{}]", text);
}

}  // namespace chairlift::batch_axis
