#include "engine/programs/cells/unfolders/sliced_layout.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/status.h"

namespace chairlift {
namespace {

// The tensor of an output: its row with the batch axis and the time axis inserted.
Shape WholeShape(const SlicedOutput& value, const Shape& row, int64_t lanes, int64_t tokens) {
  Shape shape = row;
  if (value.time_axis < 0) {
    shape.Insert(value.batch_axis, lanes);
  } else if (value.time_axis < value.batch_axis) {
    shape.Insert(value.time_axis, tokens);
    shape.Insert(value.batch_axis, lanes);
  } else {
    shape.Insert(value.batch_axis, lanes);
    shape.Insert(value.time_axis, tokens);
  }
  return shape;
}

// The row in the output's form: a view may leave one dimension open, which the row determines.
Shape ViewedRow(const SymbolicShape& view, const Shape& row) {
  Shape shape;
  int64_t known = 1;
  int open = -1;
  for (int axis = 0; axis < view.rank(); ++axis) {
    const Dim& dim = view[axis];
    const bool same = !dim.known() && view.rank() == row.rank();
    if (!dim.known() && !same) open = axis;
    shape.Append(dim.known() ? dim.value() : same ? row[axis] : 1);
    known *= shape[axis];
  }
  if (open >= 0) shape[open] = known == 0 ? 0 : row.NumElements() / known;
  return shape;
}

}  // namespace

Tensor ToRows(const Tensor& tensor, int batch_axis, int time_axis) {
  const Shape& from = tensor.shape();
  std::vector<int> order = {batch_axis};
  if (time_axis >= 0) order.push_back(time_axis);
  for (int axis = 0; axis < from.rank(); ++axis) {
    if (axis != batch_axis && axis != time_axis) order.push_back(axis);
  }
  Shape rows;
  rows.Append(from[batch_axis] * (time_axis >= 0 ? from[time_axis] : 1));
  for (size_t i = time_axis >= 0 ? 2 : 1; i < order.size(); ++i) rows.Append(from[order[i]]);

  // Dimensions of one entry may be anywhere.
  std::vector<int> moved;
  for (int axis : order) {
    if (from[axis] != 1) moved.push_back(axis);
  }
  if (std::is_sorted(moved.begin(), moved.end()) || tensor.size() == 0) {
    return tensor.Reshaped(rows);
  }
  // Trailing dimensions that keep their order move together.
  int64_t piece = static_cast<int64_t>(DTypeSize(tensor.dtype()));
  int last = from.rank() - 1;
  for (; !moved.empty() && moved.back() == last; --last) {
    piece *= from[last];
    moved.pop_back();
    while (last > 0 && from[last - 1] == 1) --last;
  }
  std::vector<int64_t> stride(static_cast<size_t>(from.rank()));
  int64_t bytes = static_cast<int64_t>(DTypeSize(tensor.dtype()));
  for (int axis = from.rank() - 1; axis >= 0; --axis) {
    stride[axis] = bytes;
    bytes *= from[axis];
  }
  Tensor out = Tensor::Allocate(tensor.dtype(), rows);
  auto* to = static_cast<std::byte*>(out.raw());
  const auto* base = static_cast<const std::byte*>(tensor.raw());
  std::vector<int64_t> at(moved.size(), 0);
  for (int64_t left = static_cast<int64_t>(out.byte_size()) / piece; left > 0; --left) {
    int64_t offset = 0;
    for (size_t i = 0; i < moved.size(); ++i) offset += at[i] * stride[moved[i]];
    std::memcpy(to, base + offset, static_cast<size_t>(piece));
    to += piece;
    for (size_t i = moved.size(); i-- > 0;) {
      if (++at[i] < from[moved[i]]) break;
      at[i] = 0;
    }
  }
  return out;
}

Status CheckDeliverable(const SlicedOutput& output, const std::string& name) {
  if (output.time_axis < 0) return absl::OkStatus();
  const int first = std::min(output.batch_axis, output.time_axis);
  const int last = std::max(output.batch_axis, output.time_axis);
  int pieces = 0;  // groups of the row's dimensions before the last axis
  bool inside = false;
  for (int axis = 0, of_row = 0; axis < last; ++axis) {
    const bool here =
        axis != first && !(output.row[of_row].known() && output.row[of_row].value() == 1);
    if (axis != first) ++of_row;
    pieces += here && !inside ? 1 : 0;
    inside = here;
  }
  if (pieces > 1) {
    return Unimplemented(
        "output '{}' has its batch and time axes at {} and {}, with others before and between",
        name, output.batch_axis, output.time_axis);
  }
  return absl::OkStatus();
}

Status CheckWholeDeliverable(const SlicedOutput& output, const std::string& name) {
  for (int axis = 0, of_row = 0; axis < output.time_axis; ++axis) {
    if (axis == output.batch_axis) continue;
    const Dim& dim = output.row[of_row++];
    if (dim.known() && dim.value() == 1) continue;
    return Unimplemented("output '{}', computed of whole sequences, has its time in axis {}", name,
                         output.time_axis);
  }
  return absl::OkStatus();
}

AnswerLayout::AnswerLayout(const SlicedOutput& output, DType dtype, const Shape& row, int64_t lanes,
                           int64_t tokens)
    : dtype_(dtype),
      shape_(WholeShape(output, ViewedRow(output.row, row), lanes, tokens)),
      batch_axis_(output.batch_axis),
      time_axis_(output.time_axis) {}

Tensor AnswerLayout::Zeros() const {
  Tensor zeros = Tensor::Allocate(dtype_, shape_);
  std::memset(zeros.raw(), 0, zeros.byte_size());
  return zeros;
}

int64_t AnswerLayout::Stride(int axis) const {
  return shape_.NumElements(axis + 1, shape_.rank()) * static_cast<int64_t>(DTypeSize(dtype_));
}

RowTarget AnswerLayout::Token(int64_t lane, int64_t token) const {
  RowTarget target;
  target.offset = lane * Stride(batch_axis_);
  int last = batch_axis_;
  if (time_axis_ >= 0) {
    target.row_stride = Stride(time_axis_);
    target.offset += token * target.row_stride;
    last = std::max(last, time_axis_);
  }
  // A row is in several pieces if some of its dimensions come before the batch or time axis.
  for (int axis = 0; axis < last; ++axis) {
    if (axis == batch_axis_ || axis == time_axis_ || shape_[axis] == 1) continue;
    target.chunk = Stride(last);
    target.chunk_stride = Stride(axis);
  }
  return target;
}

RowTarget AnswerLayout::Lane(int64_t lane) const {
  if (time_axis_ < 0) return Token(lane, 0);
  RowTarget target;
  target.offset = lane * Stride(batch_axis_);
  // A lane holds all time steps of its rows, in the answer's order. It is in several pieces if
  // dimensions come before the batch axis.
  if (batch_axis_ > 0 && shape_[batch_axis_] > 1) {
    target.chunk = Stride(batch_axis_);
    target.chunk_stride = target.chunk * shape_[batch_axis_];
  }
  return target;
}

void CopyRow(const Tensor& row, const RowTarget& target, Tensor to_tensor) {
  const auto bytes = static_cast<int64_t>(row.byte_size());
  const int64_t chunk = target.chunk == 0 ? bytes : target.chunk;
  auto* to = static_cast<std::byte*>(to_tensor.raw()) + target.offset;
  const auto* from = static_cast<const std::byte*>(row.raw());
  for (int64_t done = 0; done < bytes; done += chunk, to += target.chunk_stride) {
    std::memcpy(to, from + done, static_cast<size_t>(chunk));
  }
}

}  // namespace chairlift
