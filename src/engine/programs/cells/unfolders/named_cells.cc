#include "engine/programs/cells/unfolders/named_cells.h"

#include <cstring>
#include <utility>

#include "base/closest.h"
#include "base/status.h"

namespace chairlift {
NamedCells::NamedCells(std::span<const std::unique_ptr<Cell>> cells)
    : cells_(cells), taken_(cells.size()) {
  for (const auto& cell : cells) fed_.emplace_back(cell->inputs().size());
}

StatusOr<int> NamedCells::Take(const std::string& name) {
  for (size_t i = 0; i < cells_.size(); ++i) {
    if (cells_[i]->name() != name) continue;
    if (taken_[i]) return InvalidArgument("cell '{}' is used twice by `unfold`", name);
    taken_[i] = true;
    return static_cast<int>(i);
  }
  return InvalidArgument("there is no cell '{}'{}", name,
                         KnownNames(name, NamesOf(cells_, &Cell::name)));
}

StatusOr<int> NamedCells::Feed(int cell, const std::string& input) {
  const std::vector<Cell::Port>& ports = cells_[cell]->inputs();
  for (size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].name != input) continue;
    if (fed_[cell][i]) {
      return InvalidArgument("input '{}' of cell '{}' is fed twice", input, cells_[cell]->name());
    }
    fed_[cell][i] = true;
    return static_cast<int>(i);
  }
  return InvalidArgument("cell '{}' has no input '{}'{}", cells_[cell]->name(), input,
                         KnownNames(input, NamesOf(ports, &Cell::Port::name)));
}

StatusOr<int> NamedCells::Output(int cell, const std::string& output) const {
  const std::vector<Cell::Port>& ports = cells_[cell]->outputs();
  for (size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].name == output) return static_cast<int>(i);
  }
  return InvalidArgument("cell '{}' has no output '{}'{}", cells_[cell]->name(), output,
                         KnownNames(output, NamesOf(ports, &Cell::Port::name)));
}

StatusOr<Shape> NamedCells::Row(int cell, const Cell::Port& port) const {
  Shape row;
  for (const Dim& dim : port.row.dims()) {
    if (!dim.known()) {
      return InvalidArgument(
          "'{}' of cell '{}' has rows of shape {}; all dimensions but the batch must be numbers",
          port.name, cells_[cell]->name(), port.row.ToString());
    }
    row.Append(dim.value());
  }
  CHAIRLIFT_RETURN_IF_ERROR(row.Checked(DTypeSize(port.dtype)).status());
  return row;
}

Status NamedCells::CheckFits(int from, const Cell::Port& output, int to,
                             const Cell::Port& input) const {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Shape given, Row(from, output));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Shape wanted, Row(to, input));
  if (output.dtype == input.dtype && given.NumElements() == wanted.NumElements()) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "input '{}' of cell '{}' takes rows of {} {}, but '{}' of cell '{}' has {} {}", input.name,
      cells_[to]->name(), DTypeName(input.dtype), wanted.ToString(), output.name,
      cells_[from]->name(), DTypeName(output.dtype), given.ToString());
}

Status NamedCells::CheckComplete() const {
  for (size_t c = 0; c < cells_.size(); ++c) {
    if (!taken_[c]) return InvalidArgument("cell '{}' is not used by `unfold`", cells_[c]->name());
    for (size_t i = 0; i < fed_[c].size(); ++i) {
      if (fed_[c][i]) continue;
      return InvalidArgument("nothing feeds input '{}' of cell '{}'", cells_[c]->inputs()[i].name,
                             cells_[c]->name());
    }
  }
  return absl::OkStatus();
}

StatusOr<int> ModelSide::Add(const std::string& name, DType dtype, SymbolicShape shape) {
  for (const SymbolicSpec& spec : specs_) {
    if (spec.name == name) return InvalidArgument("the model has two {}s '{}'", what_, name);
  }
  specs_.push_back({name, dtype, std::move(shape)});
  return size() - 1;
}

SymbolicShape ShapeOf(std::vector<Dim> dims, const Shape& row) {
  for (int64_t dim : row) dims.emplace_back(dim);
  return SymbolicShape(std::move(dims));
}

StatusOr<int> AddAnswer(int output, DType dtype, Shape rows, const Shape& row,
                        const AnswerAxes& axes, CellGraphBuilder& graph) {
  for (int64_t dim : row) rows.Append(dim);
  constexpr int64_t kMaxAnswerBytes = int64_t{1} << 32;
  const StatusOr<int64_t> size = rows.Checked(DTypeSize(dtype), kMaxAnswerBytes);
  if (!size.ok()) return absl::ResourceExhaustedError(Message(size.status()));
  const int buffer = graph.AddBuffer(dtype, rows);
  graph.SetAnswer(output, buffer, axes);
  return buffer;
}

int64_t RowBytes(DType dtype, const Shape& row) {
  return row.NumElements() * static_cast<int64_t>(DTypeSize(dtype));
}

Tensor ZeroRow(DType dtype, const Shape& row) {
  Shape rows = row;
  rows.Insert(0, 1);
  Tensor zeros = Tensor::Allocate(dtype, rows);
  std::memset(zeros.raw(), 0, zeros.byte_size());
  return zeros;
}

}  // namespace chairlift
