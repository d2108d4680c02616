// Operators that join, cut and pick along an axis: rows stay apart where it is not theirs.
#include <algorithm>
#include <utility>

#include "graph/batch_axis.h"
#include "graph/batch_axis/rule.h"

namespace chairlift::batch_axis {
namespace {

Status Concat(Context& c) {
  bool any_rows = false;
  for (int i = 0; i < c.num_inputs(); ++i) any_rows |= c.in(i).rows();
  if (!any_rows) {
    std::vector<Extent> joined;
    for (int i = 0; i < c.num_inputs(); ++i) {
      const std::vector<Extent>* elements = c.Elements(i);
      CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.Rank(i));
      if (elements == nullptr || rank != 1) return Unimplemented("it computes with the batch size");
      joined.insert(joined.end(), elements->begin(), elements->end());
    }
    c.Set(0, State::Of(std::move(joined)));
    return absl::OkStatus();
  }
  const State& first = c.in(0);
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.OutputRank(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, c.Axis(c.attributes().Int("axis", 0), rank));
  for (int i = 0; i < c.num_inputs(); ++i) {
    const State& state = c.in(i);
    if (!state.rows()) return Unimplemented("its input {} has a fixed number of rows", i);
    if (state.axis != first.axis || !state.SameRows(first)) {
      return Unimplemented("its inputs have the batch along different dimensions");
    }
  }
  if (axis == first.axis) return MixesRows();
  c.Set(0, first);
  return absl::OkStatus();
}

Status Split(Context& c) {
  if (!c.in(0).rows() || !c.in(1).shared()) return Unimplemented("it computes with the batch size");
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, c.OwnAxis(0));
  if (axis == c.in(0).axis) return MixesRows();
  c.SetAll(c.in(0));
  return absl::OkStatus();
}

// One slice of known elements.
Status SliceElements(Context& c) {
  const std::vector<Extent>& elements = *c.Elements(0);
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> starts, c.Numbers(1));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> ends, c.Numbers(2));
  int64_t step = 1;
  if (c.has(4)) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, c.Numbers(4));
    if (steps.size() != 1) return Unimplemented("it computes with the batch size");
    step = steps[0];
  }
  if (starts.size() != 1 || ends.size() != 1 || step < 1) {
    return Unimplemented("it computes with the batch size");
  }
  const auto size = static_cast<int64_t>(elements.size());
  const auto clamp = [size](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? std::max<int64_t>(i, -size) + size : i, 0, size);
  };
  std::vector<Extent> part;
  for (int64_t i = clamp(starts[0]); i < clamp(ends[0]); i += std::min(step, size)) {
    part.push_back(elements[static_cast<size_t>(i)]);
  }
  c.Set(0, State::Of(std::move(part)));
  return absl::OkStatus();
}

Status Slice(Context& c) {
  if (c.in(0).sizes() && c.Elements(0) != nullptr) return SliceElements(c);
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

Status Pad(Context& c) {
  if (!c.in(0).rows() || !c.SharedFrom(1)) return Unimplemented("it pads by the batch size");
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.Rank(0));
  const std::vector<Extent>* pads = c.Elements(1);
  std::vector<int64_t> axes;
  if (c.has(3)) {
    CHAIRLIFT_ASSIGN_OR_RETURN(axes, c.Numbers(3));
  } else {
    for (int i = 0; i < rank; ++i) axes.push_back(i);
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, c.Axis(axes[i], rank));
    if (axis != c.in(0).axis) continue;
    if (pads == nullptr || pads->size() != 2 * axes.size() || !((*pads)[i] == Extent::Number(0)) ||
        !((*pads)[i + axes.size()] == Extent::Number(0))) {
      return Unimplemented("its padding along the batch is not known to be 0");
    }
  }
  c.Set(0, c.in(0));
  return absl::OkStatus();
}

Status GatherSizes(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> indices, c.Numbers(1));
  const std::vector<Extent>& elements = *c.Elements(0);
  std::vector<Extent> picked;
  for (int64_t index : indices) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int at, c.Axis(index, static_cast<int>(elements.size())));
    picked.push_back(elements[static_cast<size_t>(at)]);
  }
  c.Set(0, State::Of(std::move(picked)));
  return absl::OkStatus();
}

Status Gather(Context& c) {
  const State& data = c.in(0);
  const State& indices = c.in(1);
  if (data.sizes() && data.elements) return GatherSizes(c);
  if (data.sizes() || indices.sizes()) return Unimplemented("it computes with the batch size");
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, c.OwnAxis(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int index_rank, c.Rank(1));
  if (data.rows() && indices.rows()) {
    return Unimplemented("both what it picks from and what it picks depend on the rows");
  }
  if (indices.rows()) {
    c.Set(0, indices.At(axis + indices.axis));
    return absl::OkStatus();
  }
  if (data.axis == axis) return Unimplemented("it picks among the rows");
  c.Set(0, data.At(data.axis < axis ? data.axis : data.axis - 1 + index_rank));
  return absl::OkStatus();
}

// Data, indices (and updates) alike, along an axis that is not the rows'.
Status ElementsAlong(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, c.OwnAxis(0));
  const State& data = c.in(0);
  for (int i = 0; i < c.num_inputs(); ++i) {
    const State& state = c.in(i);
    if (!state.rows() || state.axis != data.axis || !state.SameRows(data)) {
      return Unimplemented("its inputs do not all have the batch along the same dimension");
    }
  }
  if (axis == data.axis) return MixesRows();
  c.Set(0, data);
  return absl::OkStatus();
}

Status GatherNd(Context& c) {
  const State& data = c.in(0);
  const State& indices = c.in(1);
  const int64_t batch_dims = c.attributes().Int("batch_dims", 0);
  CHAIRLIFT_ASSIGN_OR_RETURN(const int index_rank, c.Rank(1));
  if (data.shared() && indices.rows() && batch_dims == 0 && indices.axis < index_rank - 1) {
    c.Set(0, indices);
    return absl::OkStatus();
  }
  if (data.rows() && indices.rows() && data.axis == indices.axis && data.axis < batch_dims &&
      data.SameRows(indices)) {
    c.Set(0, data);
    return absl::OkStatus();
  }
  return Unimplemented("it picks among the rows");
}

Status OneHot(Context& c) {
  if (!c.in(0).rows() || !c.SharedFrom(1)) return Unimplemented("it computes with the batch size");
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.Rank(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, c.Axis(c.attributes().Int("axis", -1), rank + 1));
  c.Set(0, c.in(0).At(c.in(0).axis + (axis <= c.in(0).axis ? 1 : 0)));
  return absl::OkStatus();
}

Status ReverseSequence(Context& c) {
  const int64_t batch_axis = c.attributes().Int("batch_axis", 1);
  const State& x = c.in(0);
  const State& lengths = c.in(1);
  if (!x.rows() || !lengths.rows() || x.axis != batch_axis || lengths.axis != 0 ||
      !x.SameRows(lengths)) {
    return MixesRows();
  }
  c.Set(0, x);
  return absl::OkStatus();
}

Status Trilu(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.Rank(0));
  if (!c.in(0).rows() || !c.SharedFrom(1) || c.in(0).axis >= rank - 2) return MixesRows();
  c.Set(0, c.in(0));
  return absl::OkStatus();
}

}  // namespace

void AddIndexRules(RuleTable& rules) {
  rules["Concat"] = Concat;
  rules["Gather"] = Gather;
  rules["GatherElements"] = ElementsAlong;
  rules["GatherND"] = GatherNd;
  rules["OneHot"] = OneHot;
  rules["Pad"] = Pad;
  rules["ReverseSequence"] = ReverseSequence;
  rules["ScatterElements"] = ElementsAlong;
  rules["Slice"] = Slice;
  rules["Split"] = Split;
  rules["Trilu"] = Trilu;
}

}  // namespace chairlift::batch_axis
