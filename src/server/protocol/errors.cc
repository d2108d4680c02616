#include "server/protocol/errors.h"

#include <algorithm>
#include <chrono>

#include "base/retry_after.h"
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

Error ErrorOf(const Status& status) {
  Error error{KindOf(status), Message(status)};
  const auto after = RetryAfterOf(status);
  if (after) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(*after).count();
    error.retry_after_s = static_cast<int>(std::clamp<int64_t>(seconds, 1, 3600));
  }
  return error;
}

}  // namespace chairlift::protocol
