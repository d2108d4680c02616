// The size of a request, before its contents are read.
#ifndef CHAIRLIFT_ENGINE_REQUESTS_REQUEST_SIZE_H_
#define CHAIRLIFT_ENGINE_REQUESTS_REQUEST_SIZE_H_

#include <cstdint>

#include "chairlift/engine.h"
#include "engine/requests/validate.h"

namespace chairlift {

// Bytes that can be read or hashed within a millisecond with room to spare, at up to 1 ns each.
inline constexpr int64_t kQuickBytes = 256 << 10;

// The bytes of its inputs.
int64_t InputBytes(const InferRequest& request);

// Memory of a tensor. Strings take more than their characters.
int64_t HeldBytes(const Tensor& tensor);

// The product of the dimensions that `spec` leaves open: for an input of sequences, lanes times
// time steps. The shape need not fit. Dimensions of 0 count as 1; INT64_MAX on overflow.
int64_t OpenPlaces(const SymbolicSpec& spec, const Shape& shape);
// The maximum over its inputs that the model has.
int64_t OpenPlaces(const Signature& signature, const InferRequest& request);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUESTS_REQUEST_SIZE_H_
