// HTTP/1.0 and 1.1 request framing over a buffer that its owner fills: Boost.Beast's parser, which
// extracts the few fields that we use and allocates nothing for the rest.
#ifndef CHAIRLIFT_SERVER_HTTP_REQUEST_PARSER_H_
#define CHAIRLIFT_SERVER_HTTP_REQUEST_PARSER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/limits.h"

namespace chairlift::http {

enum class ContentCoding { kIdentity, kGzip, kDeflate };

struct RequestHead {
  std::string method;
  std::string target;
  bool http_1_0 = false;
  bool keep_alive = false;
  bool expect_continue = false;
  bool chunked = false;
  ContentCoding coding = ContentCoding::kIdentity;
  uint64_t content_length = 0;          // 0 if there is no body or it is chunked
  std::optional<uint64_t> json_length;  // Inference-Header-Content-Length, uncompressed
  std::string host;                     // Host; empty if HTTP/1.0 omits it
  std::string origin;                   // the site whose page made a browser send this; else empty
  // The trace id of the W3C traceparent field, 32 hexadecimal digits. Empty if there is no field,
  // or an invalid one, which a server must ignore.
  std::string trace_id;
  bool preflight = false;  // asks which methods a page of `origin` may use
};

// Parses one request after another on one connection. Not thread-safe.
class RequestParser {
 public:
  enum class Progress {
    kNeedMore,  // call again with the unconsumed bytes and more
    kDone,
    kFailed,  // see error_status(); the connection cannot continue
  };

  explicit RequestParser(const ServerLimits& limits);
  ~RequestParser();

  // Drops the request; the next byte starts another.
  void Reset();
  // Whether a byte of the request has been read; empty lines before it do not count.
  bool started() const;

  // Reads up to the end of the header. `*consumed` bytes at the front of `input` are done; the
  // others must be passed again, followed by more.
  Progress ReadHead(std::string_view input, size_t* consumed);
  // After a head with `chunked`: reads the body to its end, and passes its bytes to `sink`.
  Progress ReadChunks(std::string_view input, size_t* consumed,
                      const std::function<void(std::string_view)>& sink);

  const RequestHead& head() const;
  int error_status() const;  // 400, 413, 415, 417, 431, 501 or 505
  const std::string& error() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_REQUEST_PARSER_H_
