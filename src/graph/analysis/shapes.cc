#include "graph/analysis/shapes.h"

#include <algorithm>
#include <span>

namespace chairlift::analysis {

std::optional<Dims> BroadcastDims(const Dims& a, const Dims& b) {
  if (a.size() < b.size()) return BroadcastDims(b, a);
  Dims dims = a;
  const size_t added = a.size() - b.size();
  for (size_t i = 0; i < b.size(); ++i) {
    Line& dim = dims[added + i];
    if (b[i].is_one() || b[i] == dim) continue;
    if (!dim.is_one()) return std::nullopt;
    dim = b[i];
  }
  return dims;
}

StatusOr<WantedShape> Wanted(const Node& node, const Dims& from, const Dims* given) {
  const auto rank = static_cast<int64_t>(from.size());
  WantedShape wanted;
  if (node.def->name == "Flatten") {
    const int64_t axis = node.attributes.Int("axis", 1);
    const int64_t at = axis < 0 ? axis + rank : axis;
    if (at < 0 || at > rank) return Unimplemented("its axis is out of range");
    const std::span<const Line> dims(from);
    const auto left = Line::Product(dims.first(static_cast<size_t>(at)));
    const auto right = Line::Product(dims.subspan(static_cast<size_t>(at)));
    if (!left || !right) return Unimplemented("its sizes are too large");
    wanted.dims = {*left, *right};
  } else if (given == nullptr) {
    return Unimplemented("the shape it is given cannot be followed");
  } else {
    wanted.dims = *given;
  }
  const bool copies = node.def->name != "Flatten" && node.attributes.Int("allowzero", 0) == 0;
  for (size_t i = 0; i < wanted.dims.size(); ++i) {
    Line& dim = wanted.dims[i];
    if (dim == Line() && copies) {
      if (i >= from.size()) return Unimplemented("its shape copies a dimension that is not there");
      dim = from[i];
    }
    if (dim == Line::Number(-1)) {
      if (wanted.deduced) return Unimplemented("its shape leaves two dimensions open");
      wanted.deduced = i;
      continue;
    }
    const auto product = Line::Product(wanted.known, dim);
    if (!product) return Unimplemented("its sizes are too large");
    wanted.known = *product;
  }
  return wanted;
}

void NameAsInput(const Line& total, WantedShape& wanted) {
  if (wanted.deduced || wanted.known == total) return;
  for (Line& dim : wanted.dims) {
    const auto rest =
        dim.has_others({Size::kBatch}) ? Line::Quotient(wanted.known, dim) : std::nullopt;
    if (!rest || rest->has_others({Size::kBatch}) || rest->times().value_or(0) < 1) continue;
    if (const auto own = Line::Quotient(total, *rest)) {
      dim = *own;
      wanted.known = total;
    }
    return;
  }
}

StatusOr<Dims> Reshaped(const Node& node, const Dims& from, const Dims* given) {
  CHAIRLIFT_ASSIGN_OR_RETURN(WantedShape wanted, Wanted(node, from, given));
  const auto total = Line::Product(from);
  if (!total) return Unimplemented("its sizes are too large");
  NameAsInput(*total, wanted);
  if (wanted.deduced) {
    const auto dim = Line::Quotient(*total, wanted.known);
    if (!dim) {
      return Unimplemented("it makes a dimension of {} / {} entries, which cannot be followed",
                           total->ToString(), wanted.known.ToString());
    }
    wanted.dims[*wanted.deduced] = *dim;
  } else if (wanted.known != *total) {
    return Unimplemented("it makes {} of {}, which depends on sizes", ToString(wanted.dims),
                         ToString(from));
  }
  return std::move(wanted.dims);
}

std::optional<std::vector<AxisGroup>> GroupAxes(const Dims& from, const Dims& to) {
  std::vector<AxisGroup> groups;
  size_t i = 0, j = 0;
  while (i < from.size() && j < to.size()) {
    AxisGroup group{i, i + 1, j, j + 1};
    std::optional<Line> left = from[i], right = to[j];
    while (left && right && *left != *right) {
      const bool all_from = group.from_end == from.size(), all_to = group.to_end == to.size();
      if (all_from && all_to) return std::nullopt;
      const bool more_left = Line::Quotient(*right, *left).has_value();
      const bool more_right = Line::Quotient(*left, *right).has_value();
      // Both grow if neither divides the other.
      if (!all_from && (all_to || more_left || !more_right)) {
        left = Line::Product(*left, from[group.from_end++]);
      }
      if (!all_to && (all_from || more_right || !more_left)) {
        right = right ? Line::Product(*right, to[group.to_end++]) : std::nullopt;
      }
    }
    if (!left || !right || *left == Line()) return std::nullopt;
    i = group.from_end;
    j = group.to_end;
    groups.push_back(group);
  }
  // Axes of one entry behind the last.
  const auto ones = [](const Dims& dims, size_t begin) {
    return WideAxes(dims, begin, dims.size()).empty();
  };
  if (!ones(from, i) || !ones(to, j)) return std::nullopt;
  return groups;
}

std::vector<int> WideAxes(const Dims& dims, size_t begin, size_t end) {
  std::vector<int> wide;
  for (size_t i = begin; i < end; ++i) {
    if (!dims[i].is_one()) wide.push_back(static_cast<int>(i));
  }
  return wide;
}

StatusOr<Dims> SizesOf(const Node& node, const Dims& dims) {
  if (node.def->name == "Size") {
    const auto size = Line::Product(dims);
    if (!size) return Unimplemented("its input is too large");
    return Dims{*size};
  }
  const auto rank = static_cast<int64_t>(dims.size());
  const auto hold = [rank](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank);
  };
  const int64_t start = hold(node.attributes.Int("start", 0));
  const int64_t end = std::max(start, hold(node.attributes.Int("end", rank)));
  return Dims(dims.begin() + start, dims.begin() + end);
}

}  // namespace chairlift::analysis
