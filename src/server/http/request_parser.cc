// Boost.Beast's basic_parser with our own sink: the only file that includes Beast.
#include "server/http/request_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <charconv>
#include <iterator>
#include <limits>

#include "absl/strings/ascii.h"
#include "base/excerpt.h"

namespace chairlift::http {
namespace {

namespace beast = boost::beast;
using ErrorCode = boost::system::error_code;

struct Failure {
  int status = 0;
  std::string message;
};

std::string_view View(beast::string_view text) { return {text.data(), text.size()}; }

bool Decimal(std::string_view text, uint64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

// The trace id of a traceparent, "00-<32 digits>-<16 digits>-<2 digits>" (W3C Trace Context, 3.2),
// in lower case; later versions may add to the end. Empty if it is not valid.
std::string TraceIdOf(std::string_view value) {
  constexpr size_t kDigits[] = {2, 32, 16, 2};
  std::string_view parts[std::size(kDigits)];
  size_t at = 0;
  for (size_t i = 0; i < std::size(kDigits); ++i) {
    if (i > 0 && (at >= value.size() || value[at++] != '-')) return "";
    parts[i] = value.substr(std::min(at, value.size()), kDigits[i]);
    at += kDigits[i];
    const bool digits = parts[i].find_first_not_of("0123456789abcdef") == std::string_view::npos;
    if (parts[i].size() != kDigits[i] || !digits) return "";
  }
  const bool ends = at == value.size() || (parts[0] != "00" && value[at] == '-');
  const auto zero = [](std::string_view text) {
    return text.find_first_not_of('0') == std::string_view::npos;
  };
  if (!ends || parts[0] == "ff" || zero(parts[1]) || zero(parts[2])) return "";
  return std::string(parts[1]);
}

// host[:port] as in a URI, or empty.
bool IsHost(std::string_view text) {
  constexpr std::string_view kMarks = "-._~%!$&'()*+,;=:[]";
  return std::all_of(text.begin(), text.end(), [&](unsigned char c) {
    return absl::ascii_isalnum(c) || kMarks.find(static_cast<char>(c)) != kMarks.npos;
  });
}

// Bytes of empty lines at the start of `input`: some clients send one after a body.
size_t EmptyLines(std::string_view input) {
  size_t bytes = 0;
  while (input.substr(bytes).starts_with("\r\n")) bytes += 2;
  return bytes;
}

// The HTTP status for an error of Beast.
Failure Explain(const ErrorCode& ec, const ServerLimits& limits) {
  using beast::http::error;
  if (ec == error::header_limit) {
    return {431, fmt::format("the request header is larger than the limit of {} bytes",
                             limits.max_header_bytes)};
  }
  if (ec == error::body_limit) {
    return {413, fmt::format("the request body is larger than the limit of {} bytes",
                             limits.max_body_bytes)};
  }
  if (ec == error::bad_version) return {505, "only HTTP/1.0 and HTTP/1.1 are spoken here"};
  return {400, "not a valid HTTP request: " + ec.message()};
}

// Beast calls the *_impl functions while parsing; setting an error code there ends the parse.
class Sink final : public beast::http::basic_parser<true> {
 public:
  Sink(RequestHead* head, Failure* failure,
       const std::function<void(std::string_view)>* const* body)
      : head_(head), failure_(failure), body_(body) {}

 private:
  void Refuse(int status, std::string message, ErrorCode& ec) {
    *failure_ = {status, std::move(message)};
    ec = beast::http::error::bad_value;
  }

  void on_request_impl(beast::http::verb /*method*/, beast::string_view method,
                       beast::string_view target, int version, ErrorCode& /*ec*/) override {
    head_->method = View(method);
    head_->target = View(target);
    head_->http_1_0 = version == 10;
  }

  void SetCoding(beast::string_view value, ErrorCode& ec) {
    const bool first = head_->coding == ContentCoding::kIdentity;
    if (beast::iequals(value, "identity")) return;
    if (first && (beast::iequals(value, "gzip") || beast::iequals(value, "x-gzip"))) {
      head_->coding = ContentCoding::kGzip;
    } else if (first && beast::iequals(value, "deflate")) {
      head_->coding = ContentCoding::kDeflate;
    } else {
      Refuse(415,
             fmt::format("Content-Encoding '{}'{} is not supported; send one of gzip, deflate and "
                         "identity, once",
                         CutText(View(value), 64), first ? "" : " over another"),
             ec);
    }
  }

  void SetHost(beast::string_view value, ErrorCode& ec) {
    if (has_host_) return Refuse(400, "the request has more than one Host field", ec);
    if (!IsHost(View(value))) {
      return Refuse(400, "the Host field is not a host name or address, with or without a port",
                    ec);
    }
    has_host_ = true;
    head_->host = View(value);
  }

  void on_field_impl(beast::http::field field, beast::string_view name, beast::string_view value,
                     ErrorCode& ec) override {
    switch (field) {
      case beast::http::field::expect:
        if (!beast::iequals(value, "100-continue")) {
          return Refuse(417, "Expect is supported as 100-continue only", ec);
        }
        head_->expect_continue = true;
        return;
      case beast::http::field::transfer_encoding:
        if (!beast::iequals(value, "chunked")) {
          return Refuse(501, "Transfer-Encoding is supported as chunked only", ec);
        }
        if (head_->http_1_0) return Refuse(400, "HTTP/1.0 has no Transfer-Encoding", ec);
        return;
      case beast::http::field::content_encoding:
        return SetCoding(value, ec);
      case beast::http::field::host:
        return SetHost(value, ec);
      case beast::http::field::origin:
        head_->origin = View(value);
        return;
      case beast::http::field::access_control_request_method:
        head_->preflight = head_->method == "OPTIONS";
        return;
      case beast::http::field::unknown:
        break;
      default:
        return;
    }
    if (beast::iequals(name, "traceparent")) {
      head_->trace_id = TraceIdOf(View(value));
      return;
    }
    if (!beast::iequals(name, "Inference-Header-Content-Length")) return;
    if (head_->json_length) {
      return Refuse(400, "the request has more than one Inference-Header-Content-Length field", ec);
    }
    uint64_t length;
    if (!Decimal(View(value), &length)) {
      return Refuse(400, "Inference-Header-Content-Length is not a whole number", ec);
    }
    head_->json_length = length;
  }

  void on_header_impl(ErrorCode& ec) override {
    if (has_host_ || head_->http_1_0) return;
    Refuse(400, "an HTTP/1.1 request needs a Host field", ec);
  }
  void on_body_init_impl(const boost::optional<std::uint64_t>& /*length*/,
                         ErrorCode& /*ec*/) override {}
  std::size_t on_body_impl(beast::string_view body, ErrorCode& /*ec*/) override {
    return body.size();
  }
  void on_chunk_header_impl(std::uint64_t /*size*/, beast::string_view /*extensions*/,
                            ErrorCode& /*ec*/) override {}
  std::size_t on_chunk_body_impl(std::uint64_t /*remain*/, beast::string_view body,
                                 ErrorCode& /*ec*/) override {
    (**body_)(View(body));
    return body.size();
  }
  void on_finish_impl(ErrorCode& /*ec*/) override {}
  void on_response_impl(int /*code*/, beast::string_view /*reason*/, int /*version*/,
                        ErrorCode& /*ec*/) override {}

  RequestHead* head_;
  Failure* failure_;
  bool has_host_ = false;
  const std::function<void(std::string_view)>* const* body_;
};

}  // namespace

struct RequestParser::Impl {
  explicit Impl(const ServerLimits& server_limits) : limits(server_limits) { Reset(); }

  void Reset() {
    head = RequestHead();
    failure = Failure();
    header_bytes = 0;
    started = false;
    parser.emplace(&head, &failure, &body);
    parser->header_limit(static_cast<uint32_t>(limits.max_header_bytes));
    // The session checks announced lengths. (boost::none would set the smallest limit.)
    parser->body_limit(std::numeric_limits<uint64_t>::max());
  }

  Progress Fail(const ErrorCode& ec) {
    if (failure.status == 0) failure = Explain(ec, limits);
    return Progress::kFailed;
  }

  // Beast limits the request line and the fields separately by the header limit; this limits their
  // sum.
  bool HeaderTooLarge(size_t more) const { return header_bytes + more > limits.max_header_bytes; }

  const ServerLimits limits;
  RequestHead head;
  Failure failure;
  size_t header_bytes = 0;
  bool started = false;
  const std::function<void(std::string_view)>* body = nullptr;
  std::optional<Sink> parser;
};

RequestParser::RequestParser(const ServerLimits& limits) : impl_(std::make_unique<Impl>(limits)) {}
RequestParser::~RequestParser() = default;

void RequestParser::Reset() { impl_->Reset(); }
bool RequestParser::started() const { return impl_->started; }
const RequestHead& RequestParser::head() const { return impl_->head; }
int RequestParser::error_status() const { return impl_->failure.status; }
const std::string& RequestParser::error() const { return impl_->failure.message; }

RequestParser::Progress RequestParser::ReadHead(std::string_view input, size_t* consumed) {
  *consumed = started() ? 0 : EmptyLines(input);
  input.remove_prefix(*consumed);
  if (input.empty() || (!started() && input == "\r")) return Progress::kNeedMore;
  impl_->started = true;
  Sink& parser = *impl_->parser;
  ErrorCode ec;
  const size_t taken = parser.put(boost::asio::buffer(input.data(), input.size()), ec);
  *consumed += taken;
  input.remove_prefix(taken);
  impl_->header_bytes += taken;
  const bool need_more = ec == beast::http::error::need_more;
  if (ec && !need_more) return impl_->Fail(ec);
  if (impl_->HeaderTooLarge(need_more ? input.size() : 0)) {
    return impl_->Fail(beast::http::error::header_limit);
  }
  if (!parser.is_header_done()) return Progress::kNeedMore;
  RequestHead& head = impl_->head;
  head.chunked = parser.chunked();
  head.keep_alive = parser.keep_alive();
  if (head.chunked) parser.body_limit(static_cast<uint64_t>(impl_->limits.max_body_bytes));
  if (!head.chunked) head.content_length = parser.content_length().value_or(0);
  return Progress::kDone;
}

RequestParser::Progress RequestParser::ReadChunks(
    std::string_view input, size_t* consumed, const std::function<void(std::string_view)>& sink) {
  *consumed = 0;
  if (input.empty()) return Progress::kNeedMore;
  Sink& parser = *impl_->parser;
  impl_->body = &sink;
  parser.eager(true);
  ErrorCode ec;
  *consumed = parser.put(boost::asio::buffer(input.data(), input.size()), ec);
  impl_->body = nullptr;
  if (ec && ec != beast::http::error::need_more) return impl_->Fail(ec);
  if (parser.is_done()) return Progress::kDone;
  if (input.size() - *consumed > impl_->limits.max_header_bytes) {
    impl_->failure = {431, fmt::format("a chunk's header or trailer is larger than the limit of {} "
                                       "bytes",
                                       impl_->limits.max_header_bytes)};
    return Progress::kFailed;
  }
  return Progress::kNeedMore;
}

}  // namespace chairlift::http
