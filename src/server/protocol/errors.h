// What kinds of errors the protocol knows. Each wire maps them to codes of its own.
#ifndef CHAIRLIFT_SERVER_PROTOCOL_ERRORS_H_
#define CHAIRLIFT_SERVER_PROTOCOL_ERRORS_H_

#include <string>

#include "chairlift/status.h"

namespace chairlift::protocol {

enum class ErrorKind {
  kInvalidRequest,  // sending it again will not help
  kNotFound,        // no such model, version or region
  kForbidden,       // the server's settings do not allow it
  kClientLimit,     // this client has its share; it may retry when its other requests have ended
  kBusy,            // a queue or budget of the server is full; retry later
  kTimeout,         // the request's deadline passed
  kNotReady,        // loading, draining or stopped; retry later
  kCancelled,       // by its client
  kInternal,        // a defect of ours
};

struct Error {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;
  int retry_after_s = 1;  // where it may be retried
};

// `status` is not OK.
ErrorKind KindOf(const Status& status);
Error ErrorOf(const Status& status);

}  // namespace chairlift::protocol

#endif  // CHAIRLIFT_SERVER_PROTOCOL_ERRORS_H_
