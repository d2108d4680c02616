// Operators that change shapes.
#include <algorithm>
#include <utility>

#include "graph/batch_axis.h"
#include "graph/batch_axis/rule.h"

namespace chairlift::batch_axis {
namespace {

std::optional<Line> ProductOf(const Dims& dims, size_t first, size_t last) {
  return Line::Product(std::span(dims).subspan(first, last - first));
}

// Reinterprets the rows of a row-major array with other dimensions. Before: prefix·N blocks, one
// after the other. The new axis is the one that the batch divides. Its blocks are the same if
// prefix = (dimensions before it)·outer.
Status Regroup(Context& c, const Dims& from, const Dims& to) {
  const State& x = c.in(0);
  const std::optional<Line> before = ProductOf(from, 0, static_cast<size_t>(x.axis));
  const std::optional<Line> prefix = before ? Line::Product(*before, x.outer) : std::nullopt;
  if (!prefix) return Unimplemented("its sizes are too large");
  for (size_t axis = 0; axis < to.size(); ++axis) {
    if (to[axis].batch() == 0) continue;
    const std::optional<Line> left = ProductOf(to, 0, axis);
    const std::optional<Line> outer = left ? Line::Quotient(*prefix, *left) : std::nullopt;
    const std::optional<Line> inner = outer ? Line::Quotient(to[axis], *outer) : std::nullopt;
    const std::optional<Line> per_row =
        inner ? Line::Quotient(*inner, Line::Batch()) : std::nullopt;
    if (!per_row || per_row->batch() > 0) break;
    State state = State::Rows(static_cast<int>(axis));
    state.outer = *outer;
    state.inner = *per_row;
    c.Set(0, std::move(state));
    return absl::OkStatus();
  }
  return Unimplemented("its result, of shape {}, does not keep one block of entries for each row",
                       ToString(to));
}

Status Reshape(Context& c) {
  if (!c.in(0).rows()) return Unimplemented("the shape it gives depends on the batch size");
  CHAIRLIFT_ASSIGN_OR_RETURN(const Dims from, c.DimsOf(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(auto wanted, analysis::Wanted(c.node(), from, c.Elements(1)));
  const std::optional<Line> total = ProductOf(from, 0, from.size());
  if (!total) return Unimplemented("its sizes are too large");
  Dims& to = wanted.dims;
  analysis::NameAsInput(*total, wanted);
  if (wanted.known.batch() > 1) {
    return Unimplemented("several dimensions of its result depend on the batch");
  }
  if (wanted.known.batch() > 0) {
    // Both counts contain the batch once as a factor. They must be equal for the node to run at
    // all, and whether they are does not depend on the batch. Neither does a deduced dimension.
    if (wanted.deduced) {
      to[*wanted.deduced] = Line::Of("deduced by " + c.node().Describe());
    }
  } else if (wanted.deduced) {
    const std::optional<Line> rest = Line::Quotient(*total, wanted.known);
    if (!rest) {
      return Unimplemented("it makes a dimension of {} / {} entries, which cannot be followed",
                           total->ToString(), wanted.known.ToString());
    }
    to[*wanted.deduced] = *rest;
  } else {
    return Unimplemented("its result has {} entries, whatever the batch size",
                         wanted.known.ToString());
  }
  return Regroup(c, from, to);
}

// Shape and Size.
Status Sizes(Context& c) {
  if (!c.in(0).rows()) {  // sizes: their number does not vary
    CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.Rank(0));
    const Dims* elements = c.Elements(0);
    if (rank == 1 && elements != nullptr) {
      c.Set(0, State::Of({Line::Number(static_cast<int64_t>(elements->size()))}));
    }
    return absl::OkStatus();
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const Dims dims, c.DimsOf(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(Dims sizes, analysis::SizesOf(c.node(), dims));
  c.Set(0, State::Of(std::move(sizes)));
  return absl::OkStatus();
}

// The one entry that the batch divides; −1 if none is. An error if several are, or if `dims` are
// unknown.
StatusOr<int> BatchEntry(const Dims* dims) {
  if (dims == nullptr) return Unimplemented("the shape it is given cannot be followed");
  int entry = -1;
  for (size_t i = 0; i < dims->size(); ++i) {
    if ((*dims)[i].batch() == 0) continue;
    if (entry >= 0 || (*dims)[i].batch() > 1) {
      return Unimplemented("several dimensions of its result depend on the batch");
    }
    entry = static_cast<int>(i);
  }
  return entry;
}

// All elements are equal, so any division among rows is correct.
Status ConstantOfShape(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, BatchEntry(c.Elements(0)));
  State state = State::Rows(axis);
  const std::optional<Line> inner =
      Line::Quotient((*c.Elements(0))[static_cast<size_t>(axis)], Line::Batch());
  if (!inner) return Unimplemented("the shape it is given cannot be followed");
  state.inner = *inner;
  c.Set(0, std::move(state));
  return absl::OkStatus();
}

Status Expand(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int entry, BatchEntry(c.Elements(1)));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Dims dims, c.DimsOf(0));
  const Dims& shape = *c.Elements(1);
  const int rank = static_cast<int>(dims.size());
  const int out_rank = std::max(rank, static_cast<int>(shape.size()));
  const int shape_axis = entry < 0 ? -1 : entry + out_rank - static_cast<int>(shape.size());
  if (c.in(0).rows()) {
    const int axis = c.in(0).axis + out_rank - rank;
    if (entry >= 0) {
      if (shape_axis != axis || !(shape[static_cast<size_t>(entry)] == dims[c.in(0).axis])) {
        return Unimplemented("it repeats rows by the batch size");
      }
    } else {
      const int at = axis - (out_rank - static_cast<int>(shape.size()));
      if (at >= 0 && !shape[static_cast<size_t>(at)].is_one()) {
        return Unimplemented("it fixes the batch to {}", shape[static_cast<size_t>(at)].ToString());
      }
    }
    c.Set(0, c.in(0).At(axis));
    return absl::OkStatus();
  }
  if (!c.in(0).shared()) return Unimplemented("it computes with the batch size");
  const int from = shape_axis - (out_rank - rank);
  if (from >= 0 && !dims[static_cast<size_t>(from)].is_one()) {
    return Unimplemented("it repeats {} entries by the batch size",
                         dims[static_cast<size_t>(from)].ToString());
  }
  State state = State::Rows(shape_axis);
  const std::optional<Line> inner =
      Line::Quotient(shape[static_cast<size_t>(entry)], Line::Batch());
  if (!inner) return Unimplemented("the shape it is given cannot be followed");
  state.inner = *inner;
  c.Set(0, std::move(state));
  return absl::OkStatus();
}

// An end beyond the largest batch takes all rows.
Status Slice(Context& c) {
  if (!c.in(0).rows() || !c.SharedFrom(1)) return Unimplemented("it cuts by the batch size");
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto cuts, c.Cuts());
  for (const NodeReader::Cut& cut : cuts) {
    const bool whole = cut.start == Line() && cut.step == 1 && cut.end && cut.end->is_number() &&
                       cut.end->number >= kMaxBatchRows;
    if (cut.axis == c.in(0).axis && !whole) return MixesRows();
  }
  c.Set(0, c.in(0));
  return absl::OkStatus();
}

Status Tile(Context& c) {
  if (c.in(0).rows()) return FollowAxes(c);
  CHAIRLIFT_ASSIGN_OR_RETURN(const int entry, BatchEntry(c.Elements(1)));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Dims dims, c.DimsOf(0));
  const Dims& repeats = *c.Elements(1);
  if (repeats.size() != dims.size()) return Unimplemented("its repeats do not fit its input");
  if (!c.in(0).shared() || entry < 0) return Unimplemented("it computes with the batch size");
  // [a, a, a, ...]: each row's block is the whole of a, once or several times.
  State state = State::Rows(entry);
  const std::optional<Line> per_row =
      Line::Quotient(repeats[static_cast<size_t>(entry)], Line::Batch());
  const std::optional<Line> inner =
      per_row ? Line::Product(*per_row, dims[static_cast<size_t>(entry)]) : std::nullopt;
  if (!inner) return Unimplemented("the repeats it is given cannot be followed");
  state.inner = *inner;
  c.Set(0, std::move(state));
  return absl::OkStatus();
}

}  // namespace

void AddShapeRules(RuleTable& rules) {
  rules["ConstantOfShape"] = ConstantOfShape;
  rules["Expand"] = Expand;
  rules["Flatten"] = Reshape;
  rules["Reshape"] = Reshape;
  rules["Shape"] = Sizes;
  rules["Size"] = Sizes;
  rules["Slice"] = Slice;
  rules["Tile"] = Tile;
}

}  // namespace chairlift::batch_axis
