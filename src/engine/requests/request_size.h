// How large a request is, before anything is read of it.
#ifndef CHAIRLIFT_ENGINE_REQUESTS_REQUEST_SIZE_H_
#define CHAIRLIFT_ENGINE_REQUESTS_REQUEST_SIZE_H_

#include <cstdint>

#include "chairlift/engine.h"
#include "engine/requests/validate.h"

namespace chairlift {

// Bytes that are read or hashed within a millisecond, with room to spare: up to 1 ns each.
inline constexpr int64_t kQuickBytes = 256 << 10;

// Of its inputs.
int64_t InputBytes(const InferRequest& request);

// What a tensor of its own takes. Texts are strings, each of which takes more than its characters.
int64_t HeldBytes(const Tensor& tensor);

// The product of the dimensions that `spec` leaves open: for an input of sequences, lanes by time
// steps. The shape need not fit. Dimensions of 0 count as 1; INT64_MAX where it overflows.
int64_t OpenPlaces(const SymbolicSpec& spec, const Shape& shape);
// The largest of its inputs that the model has.
int64_t OpenPlaces(const Signature& signature, const InferRequest& request);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUESTS_REQUEST_SIZE_H_
