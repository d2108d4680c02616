#include "engine/ones_request.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace chairlift {

std::unique_ptr<Request> OnesRequest(const Signature& signature, int32_t rows, int32_t length) {
  auto request = std::make_unique<Request>();
  FittingRequest& fitting = request->fitting;
  fitting.rows = rows;
  fitting.length = length;
  if (!signature.sequences->padded) {
    fitting.tokens.assign(static_cast<size_t>(rows), length);
    fitting.num_tokens = rows * length;
  }
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const SymbolicSpec& spec = signature.inputs[i];
    Shape shape = {rows};
    for (int axis = 1; axis < spec.shape.rank(); ++axis) {
      const Dim& dim = spec.shape[axis];
      const bool tokens = axis == 1 && signature.sequences->token_inputs[i];
      shape.Append(tokens ? length : dim.known() ? dim.value() : 1);
    }
    Tensor ones = Tensor::Allocate(spec.dtype, shape);
    std::memset(ones.raw(), 0, ones.byte_size());
    if (spec.dtype == DType::kInt64) std::fill_n(ones.data<int64_t>(), ones.size(), 1);
    if (spec.dtype == DType::kInt32) std::fill_n(ones.data<int32_t>(), ones.size(), 1);
    if (spec.dtype == DType::kBool) std::fill_n(ones.data<bool>(), ones.size(), true);
    if (spec.dtype == DType::kFloat) std::fill_n(ones.data<float>(), ones.size(), 1.0f);
    fitting.inputs.push_back(std::move(ones));
  }
  return request;
}

}  // namespace chairlift
