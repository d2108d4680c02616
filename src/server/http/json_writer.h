// Appending JSON strings and numbers to a buffer, without locales, streams or temporaries.
#ifndef CHAIRLIFT_SERVER_HTTP_JSON_WRITER_H_
#define CHAIRLIFT_SERVER_HTTP_JSON_WRITER_H_

#include <fmt/format.h>

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace chairlift::http {

// With quotes. Bytes that are not UTF-8 become '?'.
void AppendJsonString(std::string_view text, std::string* out);

template <std::integral T>
void AppendJsonNumber(T value, std::string* out) {
  const fmt::format_int digits(value);
  out->append(digits.data(), digits.size());
}

// The shortest text that reads back as the same value. `value` must be finite.
template <std::floating_point T>
void AppendJsonNumber(T value, std::string* out) {
  char digits[32];
  const std::to_chars_result end = std::to_chars(digits, digits + sizeof(digits), value);
  out->append(digits, static_cast<size_t>(end.ptr - digits));
}

// {"error":"..."}
std::string ErrorBody(std::string_view message);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_JSON_WRITER_H_
