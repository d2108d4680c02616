// Errors as values: Abseil's Status, under the project's name.
//
// Codes used across the project, and what a caller can do about them:
//   kInvalidArgument     the request or model is wrong; sending it again will not help
//   kNotFound            no such model, version, input or file
//   kUnimplemented       a valid ONNX feature that Chairlift does not support, named in the message
//   kResourceExhausted   a bounded queue or limit is full; retry later
//   kDeadlineExceeded    the request's deadline passed before it was computed
//   kCancelled           the caller cancelled it
//   kUnavailable         the model or server is loading, draining or stopped; retry later
//   kInternal            a bug in Chairlift
#ifndef CHAIRLIFT_STATUS_H_
#define CHAIRLIFT_STATUS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace chairlift {

using absl::Status;
using absl::StatusOr;

}  // namespace chairlift

#endif  // CHAIRLIFT_STATUS_H_
