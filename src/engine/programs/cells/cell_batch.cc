#include "engine/programs/cells/cell_batch.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/out_of_memory.h"
#include "base/status.h"

namespace chairlift {
namespace {

constexpr size_t kReadablePastTheEnd = 64;

}  // namespace

void CellBatch::Begin(Cell& cell, std::span<const int> feeds, int32_t lasting, int32_t steps,
                      Stream& stream) {
  stream_ = &stream;
  no_padding_ = absl::OkStatus();
  cell_ = &cell;
  feeds_ = feeds;
  lasting_ = lasting;
  all_are_read_ = false;
  all_steps_ = false;
  items_.clear();
  copies_.clear();
  copies_end_.clear();
  strides_.clear();
  const bool feeds_itself =
      std::any_of(feeds.begin(), feeds.end(), [](int fed) { return fed >= 0; });
  cohort_ = feeds_itself && !cell.open() ? &CohortOf(cell) : nullptr;
  const size_t inputs = cell.inputs().size();
  places_.resize(inputs);
  later_.resize(inputs);
  states_.resize(inputs);
  for (std::vector<const std::byte*>& places : places_) places.clear();
  for (size_t i = 0; i < feeds.size() && steps > 1; ++i) {
    const auto rows = static_cast<size_t>(lasting);
    (feeds[i] < 0 ? later_ : states_)[i].assign(feeds[i] < 0 ? rows * (steps - 1) : rows, nullptr);
  }
  shapes_.clear();
  if (!cell.open()) {
    for (const Cell::Port& port : cell.inputs()) {
      shapes_.emplace_back();
      for (const Dim& dim : port.row.dims()) shapes_.back().Append(dim.value());
    }
  }
  rows_ = 0;
}

Status CellBatch::Locate(const CellRequest& request, const Item& item) {
  for (size_t i = 0; i < places_.size(); ++i) {
    CHAIRLIFT_RETURN_IF_ERROR(
        request.Locate(item.node, static_cast<int>(i), places_[i].data() + rows_));
  }
  if (item.steps == 1) return absl::OkStatus();
  all_are_read_ = all_are_read_ || request.ReadByOthers(item.node, item.steps - 1);
  for (size_t i = 0; i < feeds_.size(); ++i) {
    if (feeds_[i] >= 0) continue;
    CHAIRLIFT_RETURN_IF_ERROR(request.LocateFollowing(
        item.node, item.steps - 1, static_cast<int>(i), later_[i].data() + rows_, lasting_));
  }
  return absl::OkStatus();
}

CellBatch::Cohort& CellBatch::CohortOf(const Cell& cell) {
  for (Cohort& cohort : cohorts_) {
    if (cohort.cell == &cell) return cohort;
  }
  cohorts_.emplace_back().cell = &cell;
  return cohorts_.back();
}

bool CellBatch::AddNext(CellRequest& request, uint64_t number, NodeId node, int32_t steps) {
  if (cohort_ == nullptr) return false;
  // Usually they come in the same order as before.
  const std::vector<Rider>& riders = cohort_->riders;
  size_t at = cohort_->cursor;
  size_t seen = 0;
  const auto after = [&riders](size_t i) { return i + 1 == riders.size() ? 0 : i + 1; };
  const auto is = [&](const Rider& rider) { return rider.number == number && rider.next == node; };
  for (; seen < riders.size() && !is(riders[at]); ++seen) at = after(at);
  if (seen == riders.size()) return false;
  cohort_->cursor = after(at);
  const Rider& rider = riders[at];
  if (node + steps > rider.alike_end) return false;

  Item& item = items_.emplace_back();
  item.request = &request;
  item.number = number;
  item.node = node;
  item.steps = steps;
  item.alike_end = rider.alike_end;
  item.first_row = rows_;
  item.rows = 1;
  const size_t inputs = places_.size();
  for (size_t i = 0; i < inputs; ++i) {
    const std::byte* place = cohort_->places[at * inputs + i];
    const int64_t stride = cohort_->strides[at * inputs + i];
    strides_.push_back(stride);
    places_[i].push_back(place);
    if (feeds_[i] >= 0 || steps == 1) continue;
    const std::byte** later = later_[i].data() + rows_;
    for (int32_t step = 1; step < steps; ++step, later += lasting_) *later = place += stride;
  }
  ++rows_;
  for (size_t c = at == 0 ? 0 : riders[at - 1].copies_end; c < rider.copies_end; ++c) {
    copies_.push_back(cohort_->copies[c]);
    copies_.back().end = steps;
  }
  copies_end_.push_back(copies_.size());
  return true;
}

void CellBatch::KeepRiders() {
  if (cohort_ == nullptr) return;
  Cohort& cohort = *cohort_;
  cohort.riders.clear();
  cohort.places.clear();
  cohort.strides.clear();
  cohort.copies.clear();
  cohort.cursor = 0;
  const size_t inputs = places_.size();
  for (size_t at = 0; at < items_.size(); ++at) {
    const Item& item = items_[at];
    const NodeId next = item.node + item.steps;
    if (!item.status.ok() || item.number == 0 || next >= item.alike_end) continue;
    for (size_t c = at == 0 ? 0 : copies_end_[at - 1]; c < copies_end_[at]; ++c) {
      CellRequest::Copy& copy = cohort.copies.emplace_back(copies_[c]);
      copy.target.offset += item.steps * copy.stride;
    }
    cohort.riders.push_back({item.number, next, item.alike_end, cohort.copies.size()});
    for (size_t i = 0; i < inputs; ++i) {
      const int64_t stride = strides_[at * inputs + i];
      cohort.strides.push_back(stride);
      if (feeds_[i] < 0) {
        cohort.places.push_back(places_[i][static_cast<size_t>(item.first_row)] +
                                item.steps * stride);
        continue;
      }
      // The request keeps it until its next node has run.
      const Tensor& state = (*item.outputs.back())[static_cast<size_t>(feeds_[i])];
      cohort.places.push_back(static_cast<const std::byte*>(state.raw()) +
                              item.first_row * cell_->inputs()[i].row_bytes);
    }
  }
}

void CellBatch::Add(CellRequest& request, uint64_t number, NodeId node, int32_t steps) {
  Item& item = items_.emplace_back();
  item.request = &request;
  item.number = number;
  item.node = node;
  item.steps = steps;
  item.first_row = rows_;
  item.rows = request.rows(node);
  for (size_t i = shapes_.size(); i < places_.size(); ++i) {
    shapes_.push_back(request.RowShape(node, static_cast<int>(i)));
  }
  const auto end = static_cast<size_t>(rows_ + item.rows);
  for (std::vector<const std::byte*>& places : places_) places.resize(end);
  item.status = Locate(request, item);
  if (item.status.ok()) {
    rows_ += item.rows;
  } else {
    for (std::vector<const std::byte*>& places : places_) places.resize(static_cast<size_t>(rows_));
  }
  if (item.status.ok()) request.AppendCopies(node, steps, copies_);
  copies_end_.push_back(copies_.size());
  if (cohort_ == nullptr) return;
  strides_.resize(items_.size() * places_.size(), 0);
  if (!item.status.ok()) return;
  item.alike_end = request.AlikeFrom(node, std::span(strides_).last(places_.size()));
}

void CellBatch::Pad(int32_t rows, bool all_steps) {
  if ((rows <= 0 && !all_steps) || items_.empty()) return;
  int64_t widest = 0;
  for (size_t i = 0; i < shapes_.size(); ++i) {
    const DType dtype = cell_->inputs()[i].dtype;
    widest = std::max(widest, shapes_[i].NumElements() * static_cast<int64_t>(DTypeSize(dtype)));
  }
  // Readable past the end, like tensors.
  padding_.resize(std::max(padding_.size(), static_cast<size_t>(widest) + kReadablePastTheEnd));
  const std::byte* row = padding_.data();
  if (!stream_->device().is_host()) {
    if (padding_there_.byte_size() < padding_.size()) {
      const Shape shape{static_cast<int64_t>(padding_.size())};
      StatusOr<Tensor> there = stream_->Upload(Tensor::Wrap(DType::kUInt8, shape, padding_.data()));
      no_padding_ = there.status();
      if (!there.ok()) return;
      padding_there_ = *std::move(there);
    }
    row = static_cast<const std::byte*>(std::as_const(padding_there_).raw());
  }
  for (std::vector<const std::byte*>& places : places_) {
    places.insert(places.end(), static_cast<size_t>(rows), row);
  }
  if (!all_steps) return;
  all_steps_ = true;
  for (std::vector<const std::byte*>& places : later_) {
    std::replace(places.begin(), places.end(), static_cast<const std::byte*>(nullptr), row);
  }
}

Status CellBatch::Deliver(std::span<const Item> items, int32_t step,
                          const std::vector<Tensor>& outputs, int64_t first_row) {
  const bool here = stream_->device().is_host();
  const auto move = [&](const std::byte* from, std::byte* to, int64_t bytes) {
    if (here) {
      std::memcpy(to, from, static_cast<size_t>(bytes));
      return;
    }
    auto group = std::find_if(row_copies_.begin(), row_copies_.end(),
                              [bytes](const auto& g) { return g.first == bytes; });
    if (group == row_copies_.end()) {
      row_copies_.emplace_back(bytes, std::vector<Stream::RowCopy>());
      group = row_copies_.end() - 1;
    }
    group->second.push_back({from, to});
  };
  const auto first_item = static_cast<size_t>(items.data() - items_.data());
  for (size_t i = 0; i < items.size() && items[i].steps > step; ++i) {
    if (!items[i].status.ok()) continue;
    const size_t at = first_item + i;
    for (size_t c = at == 0 ? 0 : copies_end_[at - 1]; c < copies_end_[at]; ++c) {
      if (step < copies_[c].begin || step >= copies_[c].end) continue;
      CHAIRLIFT_RETURN_IF_ERROR(
          CellRequest::Make(copies_[c], step, outputs, items[i].first_row - first_row, move));
    }
  }
  for (auto& [bytes, copies] : row_copies_) {
    if (copies.empty()) continue;
    CHAIRLIFT_RETURN_IF_ERROR(stream_->CopyRows(copies, static_cast<size_t>(bytes)));
    copies.clear();
  }
  return absl::OkStatus();
}

Status CellBatch::Finish(const Status& enqueued, std::span<const Item> items) {
  if (stream_->device().is_host()) return enqueued;
  for (auto& [bytes, copies] : row_copies_) copies.clear();
  Status parts;
  const auto first_item = static_cast<size_t>(items.data() - items_.data());
  for (size_t i = 0; i < items.size() && enqueued.ok() && parts.ok(); ++i) {
    if (!items[i].status.ok()) continue;
    const size_t at = first_item + i;
    const size_t begin = at == 0 ? 0 : copies_end_[at - 1];
    const std::lock_guard<std::mutex> own(items[i].request->mutex());
    parts = items[i].request->ReturnParts(
        std::span(copies_).subspan(begin, copies_end_[at] - begin), *stream_);
  }
  const Status ran = stream_->Record()->Wait();
  if (!enqueued.ok()) return enqueued;
  return parts.ok() ? ran : parts;
}

StatusOr<TaskOutputs> CellBatch::RunStep(int32_t step, int64_t first_row, int64_t rows,
                                         const TaskOutputs& before, const TaskOutputs& reuse,
                                         const Machine& machine) {
  return CatchOutOfMemory([&]() -> StatusOr<TaskOutputs> {
    absl::InlinedVector<Cell::Rows, 6> inputs;
    for (size_t i = 0; i < places_.size(); ++i) {
      const std::byte* const* at = nullptr;
      if (step == 0) {
        at = places_[i].data() + first_row;
      } else if (feeds_[i] < 0) {
        at = later_[i].data() + (step - 1) * lasting_ + first_row;
      } else {
        const Tensor& state = (*before)[static_cast<size_t>(feeds_[i])];
        const auto* row = static_cast<const std::byte*>(state.raw());
        const int64_t bytes = cell_->inputs()[i].row_bytes;
        for (int64_t r = 0; r < rows; ++r, row += bytes) states_[i][static_cast<size_t>(r)] = row;
        at = states_[i].data();
      }
      inputs.push_back({shapes_[i], at});
    }
    WorkerMemory& memory = machine.memory;
    if (reuse != nullptr) {
      CHAIRLIFT_RETURN_IF_ERROR(cell_->RunInto(rows, inputs, *reuse, machine.team, machine.worker,
                                               memory.compute, memory.timer));
      return reuse;
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(
        std::vector<Tensor> outputs,
        cell_->Run(rows, inputs, machine.team, machine.worker, memory.compute, memory.staging,
                   memory.stop, memory.timer));
    return std::make_shared<const std::vector<Tensor>>(std::move(outputs));
  });
}

Status CellBatch::RunSteps(std::span<Item> items, int64_t first_row, int64_t rows,
                           const Machine& machine) {
  const StopFlag* const stop = machine.memory.stop;
  CHAIRLIFT_RETURN_IF_ERROR(no_padding_);
  TaskOutputs before, reuse;
  const int64_t all = rows;
  const bool padded = all_steps_ && items.size() == items_.size();
  for (int32_t step = 0;; ++step) {
    if (step > 0 && stop != nullptr && *stop) return absl::CancelledError("the run was stopped");
    CHAIRLIFT_ASSIGN_OR_RETURN(TaskOutputs outputs,
                               RunStep(step, first_row, rows, before, reuse, machine));
    CHAIRLIFT_RETURN_IF_ERROR(Deliver(items, step, *outputs, first_row));
    rows = 0;
    for (size_t i = 0; i < items.size() && items[i].steps > step; ++i) {
      Item& item = items[i];
      if (!item.status.ok()) continue;
      const int64_t row = item.first_row - first_row;
      const bool goes_on = item.steps > step + 1;
      if (!goes_on || all_are_read_) item.outputs.push_back(outputs);
      if (goes_on) rows = row + 1;
    }
    if (rows == 0) return absl::OkStatus();
    if (padded) rows = all;
    // Rows that have ended stay in place when the batch narrows; with padding, it would overwrite
    // them.
    const bool free = !all_are_read_ && (!padded || before.use_count() == 1);
    reuse = cell_->runs_into() && free ? std::move(before) : nullptr;
    before = std::move(outputs);
  }
}

void CellBatch::Run(Team& team, int worker, WorkerMemory& memory) {
  if (items_.empty()) return;
  const Machine machine{team, worker, memory};
  const int64_t all = places_.empty() ? rows_ : static_cast<int64_t>(places_[0].size());
  const Status together = Finish(RunSteps(items_, 0, all, machine), items_);
  if (together.ok()) return KeepRiders();
  if (cohort_ != nullptr) cohort_->riders.clear();
  const bool stopped = memory.stop != nullptr && *memory.stop;
  for (Item& item : items_) {
    if (!item.status.ok()) continue;
    if (items_.size() == 1 || stopped) {
      item.status = together;
      continue;
    }
    item.outputs.clear();
    const std::span<Item> alone(&item, 1);
    item.status = Finish(RunSteps(alone, item.first_row, item.rows, machine), alone);
    item.first_row = 0;
  }
}

}  // namespace chairlift
