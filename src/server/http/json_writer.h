// Appending JSON strings and numbers to a buffer, without locales, streams or temporaries.
#ifndef CHAIRLIFT_SERVER_HTTP_JSON_WRITER_H_
#define CHAIRLIFT_SERVER_HTTP_JSON_WRITER_H_

#include <fmt/compile.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <string>
#include <string_view>

namespace chairlift::http {

// With quotes. Invalid UTF-8 bytes become '?'. U+0085, U+2028 and U+2029 are escaped too, because
// some clients treat them as the end of a line, and so of an event.
void AppendJsonString(std::string_view text, std::string* out);

// Room that any number needs, with a comma.
inline constexpr size_t kNumberBytes = 32;

// Writes `value` at `to` and returns the end. Floats (which must be finite) are written in the
// shortest form that reads back as the same value; -0.0 with a point, because many readers treat
// "-0" as an integer.
template <typename T>
requires std::integral<T> || std::floating_point<T>
char* WriteJsonNumber(T value, char* to) {
  if constexpr (std::floating_point<T>) {
    if (value == 0 && std::signbit(value)) return std::copy_n("-0.0", 4, to);
  }
  return fmt::format_to(to, FMT_COMPILE("{}"), value);
}

template <std::integral T>
void AppendJsonNumber(T value, std::string* out) {
  const fmt::format_int digits(value);
  out->append(digits.data(), digits.size());
}

// {"error":"..."}
std::string ErrorBody(std::string_view message);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_JSON_WRITER_H_
