// Inputs as plain JSON values: their shape is their nesting, their type the model's. Included only
// by decoders, because simdjson is a heavy header.
#ifndef CHAIRLIFT_SERVER_HTTP_JSON_VALUE_H_
#define CHAIRLIFT_SERVER_HTTP_JSON_VALUE_H_

#include <simdjson.h>

#include "chairlift/engine.h"
#include "server/limits.h"

namespace chairlift::http {

// `batches`: dimension 0 is the model's batch. Leading dimensions that the value lacks are 1;
// `*missing` is their number. `json_bytes`: of the whole document. kInvalidArgument says what would
// be correct, but not which input it is.
StatusOr<Tensor> ReadValue(simdjson::dom::element value, const TensorSpec& spec, bool batches,
                           const ServerLimits& limits, size_t json_bytes, int* missing);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_JSON_VALUE_H_
