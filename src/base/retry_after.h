// How long to wait before a retry, stored in the status of a retryable error.
#ifndef CHAIRLIFT_BASE_RETRY_AFTER_H_
#define CHAIRLIFT_BASE_RETRY_AFTER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "base/clock.h"
#include "chairlift/status.h"

namespace chairlift {

inline constexpr char kRetryAfterPayload[] = "chairlift/retry-after-ns";

[[nodiscard]] inline Status WithRetryAfter(Status status, Duration after) {
  status.SetPayload(kRetryAfterPayload, absl::Cord(std::to_string(after.count())));
  return status;
}

// Absent if the status has no such time.
inline std::optional<Duration> RetryAfterOf(const Status& status) {
  const auto payload = status.GetPayload(kRetryAfterPayload);
  int64_t ns = 0;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &ns)) return std::nullopt;
  return Duration(ns);
}

}  // namespace chairlift

#endif  // CHAIRLIFT_BASE_RETRY_AFTER_H_
