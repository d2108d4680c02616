#include "server/protocol/errors.h"

#include "base/status.h"

namespace chairlift::protocol {

ErrorKind KindOf(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      return ErrorKind::kInvalidRequest;
    case absl::StatusCode::kNotFound:
      return ErrorKind::kNotFound;
    case absl::StatusCode::kPermissionDenied:
      return ErrorKind::kForbidden;
    case absl::StatusCode::kResourceExhausted:
      return ErrorKind::kBusy;
    case absl::StatusCode::kDeadlineExceeded:
      return ErrorKind::kTimeout;
    case absl::StatusCode::kUnavailable:
      return ErrorKind::kNotReady;
    case absl::StatusCode::kCancelled:
      return ErrorKind::kCancelled;
    default:
      return ErrorKind::kInternal;
  }
}

Error ErrorOf(const Status& status) { return {KindOf(status), Message(status)}; }

}  // namespace chairlift::protocol
