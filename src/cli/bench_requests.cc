#include "cli/bench_requests.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <future>
#include <memory>
#include <span>
#include <utility>

#include "base/status.h"
#include "cli/inputs.h"

namespace chairlift {
namespace {

// The status of one request; kDeadlineExceeded without an answer in time.
Status Try(LoadTarget& target, size_t prepared, double timeout_seconds) {
  auto answered = std::make_shared<std::promise<Status>>();
  std::future<Status> answer = answered->get_future();
  target.Send(prepared, [answered](Status status) { answered->set_value(std::move(status)); });
  if (answer.wait_for(std::chrono::duration<double>(timeout_seconds)) ==
      std::future_status::ready) {
    return answer.get();
  }
  return DeadlineExceeded("{} did not answer a first request within {:g} s", target.name(),
                          timeout_seconds);
}

}  // namespace

Status BenchRequests::Begin(int64_t length) {
  if (!flags_.inputs.empty()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(given_, ReadInputs(flags_.inputs));
    if (flags_.rows_in_turn) CHAIRLIFT_RETURN_IF_ERROR(PrepareRows());
    CHAIRLIFT_RETURN_IF_ERROR(Add(length));
    return Try(target_, by_length_.at(length), flags_.timeout_seconds);
  }
  CHAIRLIFT_RETURN_IF_ERROR(ParseShapes(flags_.shapes, &shapes_));
  CHAIRLIFT_RETURN_IF_ERROR(CheckShapeNames(target_.inputs(), shapes_));
  std::span<const int64_t> others = kLengthsToTry;
  if (length > 0 || flags_.length) others = {};
  if (length > 0) shapes_.length = length;
  const auto attempt = [&](const InputShapes& shapes) -> Status {
    CHAIRLIFT_ASSIGN_OR_RETURN(auto inputs, MakeInputs(target_.inputs(), shapes, random_));
    return Try(target_, target_.Prepare(std::move(inputs)), flags_.timeout_seconds);
  };
  StatusOr<InputShapes> found = FindShapes(target_.inputs(), shapes_, others, attempt);
  if (absl::IsInvalidArgument(found.status())) {
    return InvalidArgument("{}, or values, as --input NAME=FILE.npy", Message(found.status()));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(shapes_, std::move(found));
  return Add(length);
}

Status BenchRequests::Add(int64_t length) {
  if (by_length_.count(length) != 0) return absl::OkStatus();
  std::vector<NamedTensor> inputs = given_;
  if (inputs.empty()) {
    InputShapes shapes = shapes_;
    if (length > 0) shapes.length = length;
    CHAIRLIFT_ASSIGN_OR_RETURN(inputs, MakeInputs(target_.inputs(), shapes, random_));
  }
  by_length_[length] = target_.Prepare(std::move(inputs));
  return absl::OkStatus();
}

size_t BenchRequests::operator()(const Arrival& arrival) {
  if (!rows_.empty()) return rows_[next_row_++ % rows_.size()];
  return by_length_.at(arrival.length);
}

std::string BenchRequests::Describe() const {
  std::string text;
  for (const NamedTensor& input : given_) {
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", input.name,
                        DTypeName(input.tensor.dtype()), input.tensor.shape().ToString());
  }
  if (!given_.empty()) return text;
  if (flags_.lengths.empty()) {
    return DescribeInputs(target_.inputs(), shapes_).value_or(std::string()) + ", made up";
  }
  return fmt::format("{}, made up; lengths from {}", DescribeVarying(), flags_.lengths);
}

Status BenchRequests::PrepareRows() {
  std::vector<NamedTensor> first;
  const int64_t rows = given_[0].tensor.shape().rank() > 0 ? given_[0].tensor.shape()[0] : 0;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<NamedTensor> inputs;
    for (const NamedTensor& input : given_) {
      const Shape& shape = input.tensor.shape();
      if (shape.rank() == 0 || shape[0] != rows) {
        return InvalidArgument("--rows-in-turn: input '{}' has shape {}, '{}' has {} rows",
                               input.name, shape.ToString(), given_[0].name, rows);
      }
      inputs.push_back({input.name, input.tensor.Rows(row, 1)});
    }
    if (row == 0) first = inputs;
    rows_.push_back(target_.Prepare(std::move(inputs)));
  }
  if (rows == 0) return InvalidArgument("--rows-in-turn: input '{}' has no rows", given_[0].name);
  given_ = std::move(first);
  return absl::OkStatus();
}

std::string BenchRequests::DescribeVarying() const {
  InputShapes one = shapes_, two = shapes_;
  one.length = 1;
  two.length = 2;
  std::string text;
  for (const TensorSpec& spec : target_.inputs()) {
    const auto a = ResolveShape(spec, one);
    const auto b = ResolveShape(spec, two);
    if (!a.ok() || !b.ok()) continue;
    std::vector<std::string> dims;
    dims.reserve(static_cast<size_t>(a->rank()));
    for (int i = 0; i < a->rank(); ++i) {
      dims.push_back((*a)[i] == (*b)[i] ? std::to_string((*a)[i]) : "length");
    }
    text += fmt::format("{}{} {} [{}]", text.empty() ? "" : ", ", spec.name, DTypeName(spec.dtype),
                        fmt::join(dims, ","));
  }
  return text;
}

}  // namespace chairlift
