#include "engine/requests/request_size.h"

#include <algorithm>
#include <string>

#include "chairlift/text.h"

namespace chairlift {

int64_t InputBytes(const InferRequest& request) {
  int64_t bytes = 0;
  for (const NamedTensor& input : request.inputs) {
    bytes += static_cast<int64_t>(ContentBytes(input.tensor));
  }
  return bytes;
}

int64_t HeldBytes(const Tensor& tensor) {
  // A string, allocator rounding, and its terminator.
  constexpr int64_t kTextBytes = sizeof(std::string) + 32;
  const auto content = static_cast<int64_t>(ContentBytes(tensor));
  return content + (tensor.dtype() == DType::kBytes ? tensor.size() * kTextBytes : 0);
}

int64_t OpenPlaces(const SymbolicSpec& spec, const Shape& shape) {
  const bool same_rank = spec.shape.has_rank() && spec.shape.rank() == shape.rank();
  int64_t places = 1;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (same_rank && spec.shape[axis].known()) continue;
    // For inputs without elements too: a dimension of 0 must not hide another.
    if (__builtin_mul_overflow(places, std::max<int64_t>(shape[axis], 1), &places)) {
      return INT64_MAX;
    }
  }
  return places;
}

int64_t OpenPlaces(const Signature& signature, const InferRequest& request) {
  int64_t most = 1;
  for (const NamedTensor& input : request.inputs) {
    const auto spec =
        std::find_if(signature.inputs.begin(), signature.inputs.end(),
                     [&](const SymbolicSpec& other) { return other.name == input.name; });
    if (spec == signature.inputs.end()) continue;
    most = std::max(most, OpenPlaces(*spec, input.tensor.shape()));
  }
  return most;
}

}  // namespace chairlift
