// The kinds of errors of the protocol. Each transport maps them to its own codes.
#ifndef CHAIRLIFT_SERVER_PROTOCOL_ERRORS_H_
#define CHAIRLIFT_SERVER_PROTOCOL_ERRORS_H_

#include <string>

#include "chairlift/status.h"

namespace chairlift::protocol {

enum class ErrorKind {
  kInvalidRequest,  // sending it again will not help
  kNotFound,        // no such model, version or region
  kForbidden,       // not allowed by the server's settings
  // This client has its full share; it may retry when its other requests have ended.
  kClientLimit,
  kBusy,       // a queue or budget of the server is full; retry later
  kTimeout,    // the request's deadline passed
  kNotReady,   // loading, draining or stopped; retry later
  kCancelled,  // by the client
  kInternal,   // a bug in Chairlift
};

struct Error {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;
  int retry_after_s = 1;  // if it may be retried
};

// `status` must not be OK.
ErrorKind KindOf(const Status& status);
Error ErrorOf(const Status& status);

}  // namespace chairlift::protocol

#endif  // CHAIRLIFT_SERVER_PROTOCOL_ERRORS_H_
