// The state machine of a connection: heads and bodies of requests.
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "server/http/session.h"
#include "server/http/session_call.h"

namespace chairlift::http {
namespace {

constexpr size_t kFirstBytes = 256 << 10;   // initial room for a body
constexpr size_t kChunkedBytes = 64 << 10;  // initial room for a body of unknown length
constexpr size_t kInflateSlice = 1 << 20;   // decompressed before other requests get their turn
constexpr size_t kInflatedTimes = 4;        // usual size of JSON relative to its compressed form
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr std::string_view kNoMemory = "no memory for the request body";

bool Infers(Endpoint endpoint) {
  return endpoint == Endpoint::kInfer || endpoint == Endpoint::kGenerate ||
         endpoint == Endpoint::kGenerateStream || Completes(endpoint) || InfersTexts(endpoint);
}

size_t LargestBody(Endpoint endpoint, const ServerLimits& limits) {
  if (Infers(endpoint)) return limits.max_body_bytes;
  return std::min(limits.max_body_bytes, limits.max_admin_body_bytes);
}

// The maximum decompressed size of a body: without a length of its JSON, all of it is JSON.
size_t LargestInflated(const RequestHead& head, Endpoint endpoint, const ServerLimits& limits) {
  const size_t largest = LargestBody(endpoint, limits);
  return head.json_length.has_value() ? largest : std::min(largest, limits.max_json_bytes);
}

}  // namespace

bool Session::ReadHead(Lock* lock) {
  if (input_.empty()) {
    EndIfClosing();
    return false;
  }
  size_t consumed;
  const RequestParser::Progress progress = parser_.ReadHead(input_.view(), &consumed);
  input_.Consume(consumed);
  if (!head_started_ && parser_.started()) {
    head_started_ = true;
    deadline_ = Clock::Steady().Now() + context_->limits.header_timeout;
  }
  if (progress == RequestParser::Progress::kNeedMore) {
    EndIfClosing();
    return false;
  }
  BeginAccess();
  if (progress == RequestParser::Progress::kFailed) {
    RespondAndClose(parser_.error_status(), parser_.error());
    return true;
  }
  BeginBody(lock);
  return true;
}

// Why the endpoint cannot be used for this request; nothing if it can.
std::optional<Reply> Session::RefusalOfRoute() const {
  const RequestHead& head = parser_.head();
  if (route_.endpoint == Endpoint::kNone) return ErrorReply(route_.error_status, route_.error);
  if (IsAdministrative(route_.endpoint)) {
    const std::string refusal = context_->sites.Refusal(head.host, head.origin);
    if (!refusal.empty()) return ErrorReply(403, refusal);
  }
  const bool elsewhere =
      route_.endpoint == Endpoint::kMetrics && port_ == Port::kInference && !context_->http_metrics;
  if (!elsewhere) return std::nullopt;
  return ErrorReply(
      404, context_->metrics_port < 0
               ? "metrics are off; --http-metrics has them here, --metrics-port on a port of theirs"
               : fmt::format("metrics are on port {}: GET /metrics there; --http-metrics has them "
                             "here, too",
                             context_->metrics_port));
}

void Session::BeginBody(Lock* lock) {
  const RequestHead& head = parser_.head();
  const ServerLimits& limits = context_->limits;
  route_ = FindRoute(head.method, head.target, port_, limits);
  const bool has_body = head.chunked || head.content_length > 0;
  if (std::optional<Reply> refusal = RefusalOfRoute()) {
    close_after_ = has_body;
    if (IsOpenAiPath(head.target)) {
      refusal->body = TextError(route_.endpoint, &refusal->status, refusal->error);
    }
    return Respond(*std::move(refusal), route_.allow);
  }
  if (route_.endpoint == Endpoint::kOptions) {
    close_after_ = has_body;
    return Respond(Reply{}, route_.allow);
  }
  const bool compressed = head.coding != ContentCoding::kIdentity;
  const uint64_t json_bytes = head.json_length.value_or(compressed ? 0 : head.content_length);
  if (!CheckSize(json_bytes, head.content_length)) return;
  if (!has_body) return Dispatch(lock, {}, nullptr);
  body_read_at_ = Clock::Steady().Now();
  deadline_ = pace_.Start(body_read_at_);
  if (!head.chunked && !compressed && input_.view().size() >= head.content_length) {
    return Dispatch(lock, input_.view().substr(0, head.content_length), nullptr);
  }
  if (!NewBody(head.chunked ? kChunkedBytes : std::min<size_t>(head.content_length, kFirstBytes))) {
    return;
  }
  state_ = head.chunked ? State::kChunks : State::kBody;
  if (head.expect_continue && input_.empty()) {
    // 25 bytes into an empty socket buffer; a client that does not get them sends the body anyway.
    ::send(fd_, kContinue.data(), kContinue.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

// For a body as announced or received; false if it was refused.
bool Session::CheckSize(size_t json_bytes, size_t bytes) {
  const ServerLimits& limits = context_->limits;
  const size_t largest = LargestBody(route_.endpoint, limits);
  if (bytes > largest) {
    RespondAndClose(413, fmt::format("the request body is larger than the limit of {} bytes{}",
                                     largest, Infers(route_.endpoint) ? "" : " for this path"));
    return false;
  }
  if (json_bytes > limits.max_json_bytes) {
    RespondAndClose(413, fmt::format("the JSON of the request is larger than the limit of {} bytes",
                                     limits.max_json_bytes));
    return false;
  }
  return true;
}

bool Session::NewBody(size_t capacity) {
  lacking_ = nullptr;
  no_memory_ = false;
  body_ = BodyBuffer::Create(capacity, parser_.head().json_length.value_or(0), client_->bytes);
  if (body_ == nullptr) RefuseBody(nullptr);
  return body_ != nullptr;
}

void Session::RefuseBody(const ByteBudget* lacking) {
  close_after_ = true;
  Respond(lacking == nullptr ? ErrorReply(503, kNoMemory)
                             : ErrorReply(protocol::TooManyBytes(*client_, *lacking)));
}

// Never grows during a read: the read has ended.
bool Session::ReadBody(Lock* lock) {
  const size_t length = parser_.head().content_length;
  while (true) {
    const std::string_view ready = input_.view().substr(0, body_->room());
    const ByteBudget* const lacking = body_->Append(ready);
    input_.Consume(ready.size());
    if (lacking != nullptr) {
      RefuseBody(lacking);
      return true;
    }
    if (body_->size() == length) {
      EndBody(lock);
      return true;
    }
    if (body_->room() > 0) return false;
    if (!body_->Grow(std::min(length, 2 * body_->capacity()))) {
      RefuseBody(nullptr);
      return true;
    }
  }
}

void Session::AppendChunk(std::string_view bytes) {
  if (lacking_ != nullptr || no_memory_) return;
  const size_t size = body_->size() + bytes.size();
  if (size > body_->capacity() && !body_->Grow(std::max(size, 2 * body_->capacity()))) {
    no_memory_ = true;
    return;
  }
  lacking_ = body_->Append(bytes);
}

bool Session::ReadChunks(Lock* lock) {
  size_t consumed;
  const RequestParser::Progress progress = parser_.ReadChunks(
      input_.view(), &consumed, [this](std::string_view bytes) { AppendChunk(bytes); });
  input_.Consume(consumed);
  if (progress == RequestParser::Progress::kFailed) {
    RespondAndClose(parser_.error_status(), parser_.error());
    return true;
  }
  if (lacking_ != nullptr || no_memory_) {
    RefuseBody(lacking_);
    return true;
  }
  const RequestHead& head = parser_.head();
  const bool compressed = head.coding != ContentCoding::kIdentity;
  const size_t json_bytes = head.json_length.value_or(compressed ? 0 : body_->size());
  if (!CheckSize(json_bytes, body_->size())) return true;
  if (progress == RequestParser::Progress::kNeedMore) return false;
  EndBody(lock);
  return true;
}

// A body during decompression.
struct Session::Compressed {
  std::shared_ptr<BodyBuffer> bytes;
  std::unique_ptr<Inflater> inflater;  // reads them
  std::shared_ptr<BodyBuffer> body;    // the decompressed bytes
  size_t largest = 0;
};

// The body is complete: passes it to the engine, or decompresses it first.
void Session::EndBody(Lock* lock) {
  const RequestHead& head = parser_.head();
  const std::shared_ptr<BodyBuffer> body = std::move(body_);
  if (head.coding == ContentCoding::kIdentity) return Dispatch(lock, body->view(), body);
  const UnreadBody unread = {.bytes = static_cast<int64_t>(kInflatedTimes * body->size())};
  if (!Reserve({}, unread)) return;
  Compressed compressed{body, std::make_unique<Inflater>(head.coding, body->view()), nullptr,
                        LargestInflated(head, route_.endpoint, context_->limits)};
  const size_t room = std::max(kChunkedBytes, 2 * body->size());
  if (!NewBody(std::min(compressed.largest + 1, room))) return;
  compressed.body = std::move(body_);
  deadline_ = TimePoint::max();
  state_ = State::kBusy;
  InflateOnPool(std::move(compressed));
}

// One slice per task, so that a body that grows a thousandfold does not delay other requests.
void Session::InflateOnPool(Compressed compressed) {
  RunOnPool(kInflateSlice, [this, compressed = std::move(compressed)](Decoders&) mutable {
    BodyBuffer& body = *compressed.body;
    const auto refuse = [&](Reply reply) {
      compressed = Compressed();  // freed before the client may send more
      AnswerFromPool(std::move(reply));
    };
    const size_t largest = compressed.largest;
    if (body.room() == 0 && !body.Grow(std::min(largest + 1, 2 * body.capacity()))) {
      return refuse(ErrorReply(503, kNoMemory));
    }
    size_t written;
    const Inflater::Progress progress =
        compressed.inflater->Inflate(body.end(), std::min(body.room(), kInflateSlice), &written);
    if (const ByteBudget* const lacking = body.Extend(written)) {
      return refuse(ErrorReply(protocol::TooManyBytes(*client_, *lacking)));
    }
    if (body.size() > largest) {
      return refuse(ErrorReply(413, fmt::format("the request body decompresses to more "
                                                "than the limit of {} bytes",
                                                largest)));
    }
    if (progress == Inflater::Progress::kFailed) {
      const std::string& error = compressed.inflater->error();
      return refuse(compressed.inflater->no_memory() ? ErrorReply(503, error)
                                                     : RefusalOf(InvalidArgument("{}", error)));
    }
    Lock lock(mutex_);
    with_thread_ = false;
    if (state_ != State::kBusy) return;  // the client is gone
    if (progress == Inflater::Progress::kMore) {
      InflateOnPool(std::move(compressed));
    } else {
      const std::shared_ptr<BodyBuffer> whole = std::move(compressed.body);
      Dispatch(&lock, whole->view(), whole);
    }
    if (state_ != State::kBusy) ResumeOnLoop();
  });
}

void Session::AnswerFromPool(Reply reply) {
  Lock lock(mutex_);
  with_thread_ = false;
  if (state_ != State::kBusy) return;  // the client is gone
  Respond(std::move(reply));
  ResumeOnLoop();
}

}  // namespace chairlift::http
