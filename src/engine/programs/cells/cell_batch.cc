#include "engine/programs/cells/cell_batch.h"

#include <algorithm>
#include <utility>

#include "base/out_of_memory.h"
#include "base/status.h"

namespace chairlift {
namespace {

constexpr size_t kReadablePastTheEnd = 64;

}  // namespace

void CellBatch::Begin(Cell& cell) {
  cell_ = &cell;
  items_.clear();
  parts_.clear();
  copies_.clear();
  places_.resize(cell.inputs().size());
  for (std::vector<const std::byte*>& places : places_) places.clear();
  shapes_.clear();
  if (!cell.open()) {
    for (const Cell::Port& port : cell.inputs()) {
      shapes_.emplace_back();
      for (const Dim& dim : port.row.dims()) shapes_.back().Append(dim.value());
    }
  }
  rows_ = 0;
}

void CellBatch::Add(CellRequest& request, NodeId node) {
  Item item{.request = &request,
            .node = node,
            .status = {},
            .outputs = {},
            .first_row = rows_,
            .rows = request.rows(node)};
  Part part{.rows = item.rows, .first_copy = copies_.size()};
  const auto end = static_cast<size_t>(rows_ + part.rows);
  for (size_t i = shapes_.size(); i < places_.size(); ++i) {
    shapes_.push_back(request.RowShape(node, static_cast<int>(i)));
  }
  for (size_t i = 0; i < places_.size() && item.status.ok(); ++i) {
    places_[i].resize(end);
    item.status = request.Locate(node, static_cast<int>(i), places_[i].data() + rows_);
  }
  if (item.status.ok()) {
    request.AppendCopies(node, copies_);
    rows_ += part.rows;
  } else {
    for (std::vector<const std::byte*>& places : places_) places.resize(static_cast<size_t>(rows_));
    part.rows = 0;
  }
  part.last_copy = copies_.size();
  items_.push_back(std::move(item));
  parts_.push_back(part);
}

void CellBatch::Pad(int32_t rows) {
  if (rows <= 0 || items_.empty()) return;
  int64_t widest = 0;
  for (size_t i = 0; i < shapes_.size(); ++i) {
    const DType dtype = cell_->inputs()[i].dtype;
    widest = std::max(widest, shapes_[i].NumElements() * static_cast<int64_t>(DTypeSize(dtype)));
  }
  // Readable past the end, as tensors are.
  padding_.resize(std::max(padding_.size(), static_cast<size_t>(widest) + kReadablePastTheEnd));
  for (std::vector<const std::byte*>& places : places_) {
    places.insert(places.end(), static_cast<size_t>(rows), padding_.data());
  }
}

StatusOr<TaskOutputs> CellBatch::RunRows(int64_t first, int64_t rows, Team& team, int worker,
                                         WorkerMemory& memory) {
  return CatchOutOfMemory([&]() -> StatusOr<TaskOutputs> {
    std::vector<Cell::Rows> inputs;
    inputs.reserve(places_.size());
    for (size_t i = 0; i < places_.size(); ++i) {
      inputs.push_back({shapes_[i], places_[i].data() + first});
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> outputs,
                               cell_->Run(rows, inputs, team, worker, memory.compute,
                                          memory.staging, memory.stop, memory.timer));
    return std::make_shared<const std::vector<Tensor>>(std::move(outputs));
  });
}

void CellBatch::Run(Team& team, int worker, WorkerMemory& memory) {
  if (items_.empty()) return;
  const int64_t all = places_.empty() ? rows_ : static_cast<int64_t>(places_[0].size());
  const StatusOr<TaskOutputs> together = RunRows(0, all, team, worker, memory);
  for (size_t i = 0; i < items_.size(); ++i) {
    Item& item = items_[i];
    if (!item.status.ok()) continue;
    const Part& part = parts_[i];
    if (together.ok()) {
      item.outputs = *together;
    } else if (items_.size() == 1 || (memory.stop != nullptr && *memory.stop)) {
      item.status = together.status();
      continue;
    } else {
      StatusOr<TaskOutputs> alone = RunRows(item.first_row, part.rows, team, worker, memory);
      if (!alone.ok()) {
        item.status = alone.status();
        continue;
      }
      item.outputs = *std::move(alone);
      item.first_row = 0;
    }
    for (size_t c = part.first_copy; c < part.last_copy && item.status.ok(); ++c) {
      item.status = CellRequest::Make(copies_[c], *item.outputs, item.first_row);
    }
  }
}

}  // namespace chairlift
