// Formatted constructors for Status values, and the two propagation macros.
#ifndef CHAIRLIFT_BASE_STATUS_H_
#define CHAIRLIFT_BASE_STATUS_H_

#include <fmt/format.h>

#include <string>
#include <utility>

#include "chairlift/status.h"

namespace chairlift {

template <typename... Args>
[[nodiscard]] Status InvalidArgument(fmt::format_string<Args...> format, Args&&... args) {
  return absl::InvalidArgumentError(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
[[nodiscard]] Status NotFound(fmt::format_string<Args...> format, Args&&... args) {
  return absl::NotFoundError(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
[[nodiscard]] Status Unimplemented(fmt::format_string<Args...> format, Args&&... args) {
  return absl::UnimplementedError(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
[[nodiscard]] Status ResourceExhausted(fmt::format_string<Args...> format, Args&&... args) {
  return absl::ResourceExhaustedError(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
[[nodiscard]] Status Unavailable(fmt::format_string<Args...> format, Args&&... args) {
  return absl::UnavailableError(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
[[nodiscard]] Status DeadlineExceeded(fmt::format_string<Args...> format, Args&&... args) {
  return absl::DeadlineExceededError(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
[[nodiscard]] Status Internal(fmt::format_string<Args...> format, Args&&... args) {
  return absl::InternalError(fmt::format(format, std::forward<Args>(args)...));
}

// The message as a std::string (Abseil's own string_view is not std::string_view here).
inline std::string Message(const Status& status) {
  return std::string(status.message().data(), status.message().size());
}

// The same code with "context: " before the message.
[[nodiscard]] inline Status Annotate(const Status& status, const std::string& context) {
  return status.ok() ? status : Status(status.code(), context + ": " + Message(status));
}

}  // namespace chairlift

#define CHAIRLIFT_CONCAT_INNER_(a, b) a##b
#define CHAIRLIFT_CONCAT_(a, b) CHAIRLIFT_CONCAT_INNER_(a, b)

// Returns from the enclosing function when `expression` is not OK.
#define CHAIRLIFT_RETURN_IF_ERROR(expression)              \
  do {                                                     \
    ::chairlift::Status status_to_return_ = (expression);  \
    if (!status_to_return_.ok()) return status_to_return_; \
  } while (false)

// Assigns the value of a StatusOr to `target` (which may declare a variable), or returns its error.
// A declaration cannot stand in parentheses. NOLINTBEGIN(bugprone-macro-parentheses)
#define CHAIRLIFT_ASSIGN_OR_RETURN(target, expression) \
  CHAIRLIFT_ASSIGN_OR_RETURN_IMPL_(CHAIRLIFT_CONCAT_(status_or_, __LINE__), target, expression)
#define CHAIRLIFT_ASSIGN_OR_RETURN_IMPL_(status_or, target, expression) \
  auto status_or = (expression);                                        \
  if (!status_or.ok()) return std::move(status_or).status();            \
  target = std::move(status_or).value()
// NOLINTEND(bugprone-macro-parentheses)

#endif  // CHAIRLIFT_BASE_STATUS_H_
