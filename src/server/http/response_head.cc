// Writes response heads.
#include "server/http/response_head.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "server/http/json_writer.h"

namespace chairlift::http {
namespace {

using std::string_view_literals::operator""sv;

// Formatted once per second.
const std::string& CachedDate(std::time_t seconds) {
  thread_local std::time_t cached = -1;
  thread_local std::string date;
  if (seconds != cached) {
    date = HttpDate(seconds);
    cached = seconds;
  }
  return date;
}

void AppendCors(const ResponseHead& head, std::string* out) {
  out->append("\r\nAccess-Control-Allow-Origin: "sv);
  out->append(head.allow_origin);
  if (head.allow_origin != "*") out->append("\r\nVary: Origin"sv);
  out->append("\r\nAccess-Control-Expose-Headers: Inference-Header-Content-Length, Retry-After"sv);
  if (!head.preflight) return;
  out->append(
      "\r\nAccess-Control-Allow-Methods: GET, HEAD, POST"
      "\r\nAccess-Control-Allow-Headers: Authorization, Content-Encoding, Content-Type, "
      "Inference-Header-Content-Length"
      "\r\nAccess-Control-Max-Age: 7200");
}

}  // namespace

std::string_view Reason(int status) {
  static constexpr std::pair<int, std::string_view> kReasons[] = {
      {200, "OK"},
      {400, "Bad Request"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {413, "Content Too Large"},
      {415, "Unsupported Media Type"},
      {417, "Expectation Failed"},
      {422, "Unprocessable Content"},
      {424, "Failed Dependency"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {499, "Client Closed Request"},
      {500, "Internal Server Error"},
      {501, "Not Implemented"},
      {503, "Service Unavailable"},
      {505, "HTTP Version Not Supported"}};
  for (const auto& [code, reason] : kReasons) {
    if (code == status) return reason;
  }
  return "Unknown";
}

std::string HttpDate(std::time_t seconds) {
  constexpr std::array<const char*, 7> kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array<const char*, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                   "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[utc.tm_wday], utc.tm_mday,
                     kMonths[utc.tm_mon], 1900 + utc.tm_year, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

void AppendResponseHead(const ResponseHead& head, std::string* out) {
  out->append("HTTP/1.1 "sv);
  AppendJsonNumber(head.status, out);
  out->push_back(' ');
  out->append(Reason(head.status));
  out->append("\r\nDate: "sv);
  out->append(CachedDate(head.date));
  if (!head.unbounded) {
    out->append("\r\nContent-Length: "sv);
    AppendJsonNumber(head.content_length, out);
  } else if (!head.http_1_0) {
    out->append("\r\nTransfer-Encoding: chunked"sv);
  }
  if (head.content_length > 0 || head.unbounded) {
    out->append("\r\nContent-Type: "sv);
    out->append(head.content_type);
  }
  if (head.json_length.has_value()) {
    out->append("\r\nInference-Header-Content-Length: "sv);
    AppendJsonNumber(*head.json_length, out);
  }
  if (!head.allow.empty()) {
    out->append("\r\nAllow: "sv);
    out->append(head.allow);
  }
  if (!head.allow_origin.empty()) AppendCors(head, out);
  if (head.status == 503) {
    out->append("\r\nRetry-After: "sv);
    AppendJsonNumber(head.retry_after_s, out);
  }
  if (!head.keep_alive) {
    out->append("\r\nConnection: close"sv);
  } else if (head.http_1_0) {
    out->append("\r\nConnection: keep-alive"sv);
  }
  out->append("\r\n\r\n"sv);
}

}  // namespace chairlift::http
