// The status line and fields of a response.
#ifndef CHAIRLIFT_SERVER_HTTP_RESPONSE_HEAD_H_
#define CHAIRLIFT_SERVER_HTTP_RESPONSE_HEAD_H_

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

namespace chairlift::http {

struct ResponseHead {
  int status = 200;
  int retry_after_s = 1;          // for a 503
  std::string_view content_type;  // omitted if the body is empty
  uint64_t content_length = 0;
  bool unbounded = false;  // no length: sent in chunks, or to HTTP/1.0 until the connection closes
  std::optional<uint64_t> json_length;  // Inference-Header-Content-Length
  std::string_view allow = {};          // for a 405, and for an answer to OPTIONS
  std::string_view allow_origin = {};   // the site whose pages may read this; empty: none
  bool preflight = false;               // also says what pages may send
  bool keep_alive = true;
  bool http_1_0 = false;  // the request's version: keep-alive must be explicit
  std::time_t date = 0;   // now, in seconds since the epoch
};

// "OK", "Not Found", ...
std::string_view Reason(int status);

// In HTTP's format: "Sun, 06 Nov 1994 08:49:37 GMT".
std::string HttpDate(std::time_t seconds);

void AppendResponseHead(const ResponseHead& head, std::string* out);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_RESPONSE_HEAD_H_
