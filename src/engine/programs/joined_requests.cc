#include "engine/programs/joined_requests.h"

#include <cstring>
#include <utility>

#include "base/status.h"
#include "engine/programs/staging.h"
#include "engine/requests/row_parts.h"

namespace chairlift {
namespace {

// Joins one input of all requests along `axis`, at `place`.
void Join(RequestSpan requests, size_t input, int axis, std::byte* place) {
  const int64_t outer = requests[0]->inputs[input].shape().NumElements(0, axis);
  for (int64_t o = 0; o < outer; ++o) {
    for (const ValidatedRequest* request : requests) {
      const Tensor& part = request->inputs[input];
      const size_t bytes = part.byte_size() / static_cast<size_t>(outer);
      if (bytes == 0) continue;
      std::memcpy(place, static_cast<const std::byte*>(part.raw()) + o * bytes, bytes);
      place += bytes;
    }
  }
}

}  // namespace

StatusOr<std::vector<Tensor>> LoneRequest::Inputs(Arena& /*staging*/) const {
  if (inputs_.empty()) return request_.inputs;
  std::vector<Tensor> inputs;
  inputs.reserve(inputs_.size());
  for (const int input : inputs_) inputs.push_back(request_.inputs[static_cast<size_t>(input)]);
  return inputs;
}

StatusOr<std::vector<NamedTensor>> LoneRequest::Outputs(size_t /*i*/,
                                                        std::span<const Tensor> outputs) const {
  std::vector<NamedTensor> wanted;
  for (const int output : request_.outputs) {
    const auto at = static_cast<size_t>(output);
    wanted.push_back({signature_.outputs[at].name, outputs[at]});
  }
  return wanted;
}

RowsTogether::RowsTogether(const Signature& signature, std::span<const int> inputs,
                           RequestSpan requests)
    : signature_(signature), inputs_(inputs), requests_(requests) {
  for (const ValidatedRequest* request : requests) rows_ += request->rows;
}

StatusOr<std::vector<Tensor>> RowsTogether::Inputs(Arena& staging) const {
  const ValidatedRequest& any = *requests_[0];
  std::vector<TensorDesc> descs;
  for (size_t i = 0; i < num_inputs(); ++i) {
    const Tensor& first = any.inputs[input(i)];
    Shape shape = first.shape();
    shape[any.input_axis(input(i))] = rows_;
    descs.push_back({first.dtype(), shape});
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> inputs, Stage(descs, staging));
  for (size_t i = 0; i < inputs.size(); ++i) {
    Join(requests_, input(i), any.input_axis(input(i)), static_cast<std::byte*>(inputs[i].raw()));
  }
  return inputs;
}

StatusOr<std::vector<NamedTensor>> RowsTogether::Outputs(size_t i,
                                                         std::span<const Tensor> outputs) const {
  const ValidatedRequest& request = *requests_[i];
  int64_t first = 0;
  for (size_t before = 0; before < i; ++before) first += requests_[before]->rows;
  std::vector<NamedTensor> wanted;
  for (const int index : request.outputs) {
    const Tensor& output = outputs[static_cast<size_t>(index)];
    const std::string& name = signature_.outputs[static_cast<size_t>(index)].name;
    const int axis = request.output_axis(index);
    if (output.shape().rank() <= axis || output.shape()[axis] != rows_) {
      return Internal("output '{}' of a batch of {} rows has shape {}", name, rows_,
                      output.shape().ToString());
    }
    wanted.push_back({name, CutRows(output, axis, first, request.rows)});
  }
  return wanted;
}

}  // namespace chairlift
