#include "engine/requests/row_parts.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/out_of_memory.h"
#include "base/status.h"
#include "chairlift/text.h"

namespace chairlift {
namespace {

struct Strides {
  int64_t outer = 1;
  size_t row = 0;  // bytes per row, within one of `outer`
};

Strides StridesOf(const Shape& shape, int axis, DType dtype) {
  return {.outer = shape.NumElements(0, axis),
          .row = static_cast<size_t>(shape.NumElements(axis + 1, shape.rank())) * DTypeSize(dtype)};
}

// Writes `part` to the rows of `whole` from `first` on.
void PasteRows(const Tensor& part, int axis, int64_t first, Tensor& whole) {
  const Strides strides = StridesOf(part.shape(), axis, part.dtype());
  const size_t bytes = strides.row * static_cast<size_t>(part.shape()[axis]);
  if (bytes == 0) return;
  const size_t stride = strides.row * static_cast<size_t>(whole.shape()[axis]);
  for (int64_t o = 0; o < strides.outer; ++o) {
    std::memcpy(static_cast<std::byte*>(whole.raw()) + static_cast<size_t>(o) * stride +
                    static_cast<size_t>(first) * strides.row,
                static_cast<const std::byte*>(part.raw()) + static_cast<size_t>(o) * bytes, bytes);
  }
}

// The load of one row, as in ValidatedRequest::load().
int32_t LoadOf(const ValidatedRequest& request, int32_t row) {
  return request.tokens.empty() ? 1 : request.tokens[static_cast<size_t>(row)];
}

Status MoreThanOwn(const RowParts::Limits& limits) {
  return absl::OutOfRangeError(
      fmt::format("its outputs need more than the {:.2f} MiB that one task may have "
                  "(--memory-budget); fewer rows need less",
                  static_cast<double>(limits.own) / (1 << 20)));
}

}  // namespace

Tensor CutRows(const Tensor& whole, int axis, int64_t first, int64_t rows) {
  if (axis == 0) return whole.Rows(first, rows);
  Shape shape = whole.shape();
  shape[axis] = rows;
  Tensor part = Tensor::Allocate(whole.dtype(), shape);
  if (part.byte_size() == 0) return part;
  const Strides strides = StridesOf(shape, axis, whole.dtype());
  const size_t bytes = strides.row * static_cast<size_t>(rows);
  const size_t stride = strides.row * static_cast<size_t>(whole.shape()[axis]);
  for (int64_t o = 0; o < strides.outer; ++o) {
    std::memcpy(static_cast<std::byte*>(part.raw()) + static_cast<size_t>(o) * bytes,
                static_cast<const std::byte*>(whole.raw()) + static_cast<size_t>(o) * stride +
                    static_cast<size_t>(first) * strides.row,
                bytes);
  }
  if (whole.dtype() == DType::kBytes) return part.Clone();  // `whole` owns the strings
  return part;
}

ValidatedRequest RowsOf(const ValidatedRequest& whole, RowRange range) {
  ValidatedRequest part;
  part.outputs = whole.outputs;
  part.rows = range.rows;
  part.key = whole.key;
  part.length = whole.length;
  part.axes = whole.axes;
  part.inputs = whole.inputs;
  for (size_t i = 0; i < part.inputs.size(); ++i) {
    const int axis = whole.input_axis(i);
    if (axis >= 0) part.inputs[i] = CutRows(part.inputs[i], axis, range.first, range.rows);
  }
  if (!whole.tokens.empty()) {
    const auto first = whole.tokens.begin() + range.first;
    part.tokens.assign(first, first + range.rows);
    part.num_tokens = std::accumulate(part.tokens.begin(), part.tokens.end(), 0);
  }
  if (!whole.left_out.empty()) {
    const auto first = whole.left_out.begin() + range.first * whole.length;
    part.left_out.assign(first, first + range.rows * whole.length);
  }
  return part;
}

RowParts::RowParts(const ValidatedRequest& whole, int32_t max_load) : whole_(whole) {
  RowRange range;
  int64_t load = 0;
  for (int32_t row = 0; row < whole.rows; ++row) {
    const int32_t own = LoadOf(whole, row);
    if (range.rows > 0 && load + own > max_load) {
      ranges_.push_back(range);
      range = {.first = row, .rows = 0};
      load = 0;
    }
    ++range.rows;
    load += own;
  }
  ranges_.push_back(range);
}

RowParts::~RowParts() {
  if (budget_ != nullptr) budget_->Give(taken_);
}

int32_t RowParts::load(int part) const {
  const auto [first, rows] = range(part);
  int32_t load = 0;
  for (int32_t row = first; row < first + rows; ++row) load += LoadOf(whole_, row);
  return load;
}

int RowParts::OutputAxis(size_t output) const { return whole_.output_axis(whole_.outputs[output]); }

Status RowParts::MakeOutputs(RowRange part, std::span<const NamedTensor> outputs,
                             const Limits& limits) {
  std::vector<Shape> shapes;
  size_t bytes = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& tensor = outputs[i].tensor;
    Shape shape = tensor.shape();
    const int axis = OutputAxis(i);
    if (shape.rank() <= axis || shape[axis] != part.rows) {
      return Internal("output '{}' of {} rows has shape {}", outputs[i].name, part.rows,
                      shape.ToString());
    }
    shape[axis] = whole_.rows;
    CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t size, shape.Checked(DTypeSize(tensor.dtype())));
    bytes += static_cast<size_t>(size) * DTypeSize(tensor.dtype());
    if (bytes > limits.own) {
      return MoreThanOwn(limits);
    }
    shapes.push_back(shape);
  }
  if (budget_ == nullptr && limits.all != nullptr) {
    if (limits.all->Take(static_cast<int64_t>(bytes)) != nullptr) {
      constexpr double kMiB = 1 << 20;
      return ResourceExhausted(
          "its answer of {:.2f} MiB does not fit: answers that are computed in parts have {:.2f} "
          "of "
          "{:.2f} MiB (--memory-budget); try again later, or send fewer rows",
          static_cast<double>(bytes) / kMiB, static_cast<double>(limits.all->held()) / kMiB,
          static_cast<double>(limits.all->limit()) / kMiB);
    }
    budget_ = limits.all;
    taken_ = static_cast<int64_t>(bytes);
  }
  std::vector<NamedTensor> all;
  for (size_t i = 0; i < outputs.size(); ++i) {
    all.push_back({outputs[i].name, Tensor::Allocate(outputs[i].tensor.dtype(), shapes[i])});
  }
  outputs_ = std::move(all);
  return absl::OkStatus();
}

Status RowParts::KeepTexts(const Tensor& tensor, const Limits& limits) {
  const size_t bytes = ContentBytes(tensor) - tensor.byte_size();
  text_bytes_ += bytes;
  if (text_bytes_ > limits.own) return MoreThanOwn(limits);
  if (budget_ != nullptr) {
    if (budget_->Take(static_cast<int64_t>(bytes)) != nullptr) {
      return ResourceExhausted(
          "the strings of its answer do not fit: answers that are computed in parts have all of "
          "{:.2f} MiB (--memory-budget); try again later, or send fewer rows",
          static_cast<double>(limits.all->limit()) / (1 << 20));
    }
    taken_ += static_cast<int64_t>(bytes);
  }
  text_owners_->push_back(tensor.owner());
  return absl::OkStatus();
}

std::vector<NamedTensor> RowParts::Take() {
  for (NamedTensor& output : outputs_) {
    Tensor& tensor = output.tensor;
    if (tensor.dtype() != DType::kBytes) continue;
    struct Owners {
      Tensor views;
      std::shared_ptr<const TextOwners> texts;
    };
    auto owners = std::make_shared<Owners>(Owners{tensor, text_owners_});
    tensor = Tensor::Wrap(DType::kBytes, tensor.shape(), owners->views.raw(), owners);
  }
  return std::move(outputs_);
}

Status RowParts::Put(int part, std::span<const NamedTensor> outputs, const Limits& limits) {
  const RowRange rows = range(part);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (outputs_.empty()) {
      CHAIRLIFT_RETURN_IF_ERROR(
          CatchOutOfMemory([&] { return MakeOutputs(rows, outputs, limits); }));
    }
    for (const NamedTensor& output : outputs) {
      if (output.tensor.dtype() != DType::kBytes) continue;
      CHAIRLIFT_RETURN_IF_ERROR(KeepTexts(output.tensor, limits));
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& tensor = outputs[i].tensor;
    const int axis = OutputAxis(i);
    Shape expected = outputs_[i].tensor.shape();
    expected[axis] = rows.rows;
    if (tensor.dtype() != outputs_[i].tensor.dtype() || !(tensor.shape() == expected)) {
      return Internal("output '{}' of {} rows has shape {}, not {} as of others", outputs[i].name,
                      rows.rows, tensor.shape().ToString(), expected.ToString());
    }
    PasteRows(tensor, axis, rows.first, outputs_[i].tensor);
  }
  return absl::OkStatus();
}

}  // namespace chairlift
