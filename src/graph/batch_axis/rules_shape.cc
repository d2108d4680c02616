// Operators that change shapes.
#include <algorithm>
#include <utility>

#include "graph/batch_axis.h"
#include "graph/batch_axis/rule.h"

namespace chairlift::batch_axis {
namespace {

std::optional<Extent> ProductOf(const std::vector<Extent>& dims, size_t first, size_t last) {
  return Extent::Product(std::span(dims).subspan(first, last - first));
}

// Reinterprets the rows of a row-major array with other dimensions. Before: prefix·N blocks, one
// after the other. The new axis is the one that the batch divides. Its blocks are the same if
// prefix = (dimensions before it)·outer.
Status Regroup(Context& c, const std::vector<Extent>& from, const std::vector<Extent>& to) {
  const State& x = c.in(0);
  const std::optional<Extent> before = ProductOf(from, 0, static_cast<size_t>(x.axis));
  const std::optional<Extent> prefix = before ? Extent::Product(*before, x.outer) : std::nullopt;
  if (!prefix) return Unimplemented("its sizes are too large");
  for (size_t axis = 0; axis < to.size(); ++axis) {
    if (to[axis].batch() == 0) continue;
    const std::optional<Extent> left = ProductOf(to, 0, axis);
    const std::optional<Extent> outer = left ? Extent::Quotient(*prefix, *left) : std::nullopt;
    const std::optional<Extent> inner = outer ? Extent::Quotient(to[axis], *outer) : std::nullopt;
    const std::optional<Extent> per_row =
        inner ? Extent::Quotient(*inner, Extent::Batch()) : std::nullopt;
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
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> from, c.Dims(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(NodeReader::WantedShape wanted, c.Wanted(from));
  const std::optional<Extent> total = ProductOf(from, 0, from.size());
  if (!total) return Unimplemented("its sizes are too large");
  std::vector<Extent>& to = wanted.dims;
  NodeReader::NameAsInput(*total, wanted);
  if (wanted.known.batch() > 1) {
    return Unimplemented("several dimensions of its result depend on the batch");
  }
  if (wanted.known.batch() > 0) {
    // Both counts contain the batch once as a factor. They must be equal for the node to run at
    // all, and whether they are does not depend on the batch. Neither does a deduced dimension.
    if (wanted.deduced) {
      to[*wanted.deduced] = Extent::Symbol("deduced by " + c.node().Describe());
    }
  } else if (wanted.deduced) {
    const std::optional<Extent> rest = Extent::Quotient(*total, wanted.known);
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

Status Flatten(Context& c) {
  if (!c.in(0).rows()) return Unimplemented("it computes with the batch size");
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> from, c.Dims(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> to, c.Flattened(from));
  return Regroup(c, from, to);
}

Status ShapeRule(Context& c) {
  if (!c.in(0).rows()) {  // sizes: their number does not vary
    CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.Rank(0));
    const std::vector<Extent>* elements = c.Elements(0);
    if (rank == 1 && elements != nullptr) {
      c.Set(0, State::Of({Extent::Number(static_cast<int64_t>(elements->size()))}));
    }
    return absl::OkStatus();
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> dims, c.Dims(0));
  const auto [start, end] = ShapeRange(c.attributes(), static_cast<int64_t>(dims.size()));
  std::vector<Extent> part(dims.begin() + start, dims.begin() + end);
  c.Set(0, State::Of(std::move(part)));
  return absl::OkStatus();
}

Status SizeOf(Context& c) {
  if (!c.in(0).rows()) {
    return absl::OkStatus();
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> dims, c.Dims(0));
  const std::optional<Extent> size = ProductOf(dims, 0, dims.size());
  if (!size) return Unimplemented("its input is too large");
  c.Set(0, State::Of({*size}));
  return absl::OkStatus();
}

// The one entry that the batch divides; −1 if none is. An error if several are, or if `dims` are
// unknown.
StatusOr<int> BatchEntry(const std::vector<Extent>* dims) {
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
  const std::optional<Extent> inner =
      Extent::Quotient((*c.Elements(0))[static_cast<size_t>(axis)], Extent::Batch());
  if (!inner) return Unimplemented("the shape it is given cannot be followed");
  state.inner = *inner;
  c.Set(0, std::move(state));
  return absl::OkStatus();
}

Status Expand(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int entry, BatchEntry(c.Elements(1)));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> dims, c.Dims(0));
  const std::vector<Extent>& shape = *c.Elements(1);
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
  const std::optional<Extent> inner =
      Extent::Quotient(shape[static_cast<size_t>(entry)], Extent::Batch());
  if (!inner) return Unimplemented("the shape it is given cannot be followed");
  state.inner = *inner;
  c.Set(0, std::move(state));
  return absl::OkStatus();
}

// An end beyond the largest batch takes all rows.
Status Slice(Context& c) {
  if (!c.in(0).rows() || !c.SharedFrom(1)) return Unimplemented("it cuts by the batch size");
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<NodeReader::Cut> cuts, c.Cuts());
  for (const NodeReader::Cut& cut : cuts) {
    const bool whole = cut.start == 0 && cut.step == 1 && cut.end && cut.end->is_number() &&
                       cut.end->number() >= kMaxBatchRows;
    if (cut.axis == c.in(0).axis && !whole) return MixesRows();
  }
  c.Set(0, c.in(0));
  return absl::OkStatus();
}

Status Tile(Context& c) {
  if (c.in(0).rows()) return FollowAxes(c);
  CHAIRLIFT_ASSIGN_OR_RETURN(const int entry, BatchEntry(c.Elements(1)));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> dims, c.Dims(0));
  const std::vector<Extent>& repeats = *c.Elements(1);
  if (repeats.size() != dims.size()) return Unimplemented("its repeats do not fit its input");
  if (!c.in(0).shared() || entry < 0) return Unimplemented("it computes with the batch size");
  // [a, a, a, ...]: each row's block is the whole of a, once or several times.
  State state = State::Rows(entry);
  const std::optional<Extent> per_row =
      Extent::Quotient(repeats[static_cast<size_t>(entry)], Extent::Batch());
  const std::optional<Extent> inner =
      per_row ? Extent::Product(*per_row, dims[static_cast<size_t>(entry)]) : std::nullopt;
  if (!inner) return Unimplemented("the repeats it is given cannot be followed");
  state.inner = *inner;
  c.Set(0, std::move(state));
  return absl::OkStatus();
}

}  // namespace

void AddShapeRules(RuleTable& rules) {
  rules["ConstantOfShape"] = ConstantOfShape;
  rules["Expand"] = Expand;
  rules["Flatten"] = Flatten;
  rules["Reshape"] = Reshape;
  rules["Shape"] = ShapeRule;
  rules["Size"] = SizeOf;
  rules["Slice"] = Slice;
  rules["Tile"] = Tile;
}

}  // namespace chairlift::batch_axis
