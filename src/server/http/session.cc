// The state machine of a connection: reading and dispatching. session_write.cc has the other half.
#include "server/http/session.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>

#include "base/status.h"

namespace chairlift::http {
namespace {

constexpr size_t kInputBytes = 8192;
constexpr size_t kChunkedBytes = 64 << 10;  // first size of a chunked body's buffer
constexpr size_t kInflateSlice = 1 << 20;   // decompressed between turns of other connections
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

std::string TooManyBodies(const ServerLimits& limits) {
  return fmt::format("the server holds its limit of {} bytes of request bodies",
                     limits.max_buffered_bytes);
}

// Bytes that a compressed body may turn into: without a length of its JSON, all of it is JSON.
size_t LargestInflated(const RequestHead& head, const ServerLimits& limits) {
  if (head.json_length.has_value()) return limits.max_body_bytes;
  return std::min(limits.max_body_bytes, limits.max_json_bytes);
}

TimePoint After(std::chrono::milliseconds delay) { return Clock::Steady().Now() + delay; }

}  // namespace

// Lets go of the session before the call is counted as ended: the last one to do so destroys the
// socket, which needs the loop alive.
struct Session::CallGuard {
  explicit CallGuard(std::shared_ptr<Session> called)
      : session(std::move(called)), context(session->context_) {}
  ~CallGuard() {
    session.reset();
    context->calls.Remove();
  }

  std::shared_ptr<Session> session;
  const std::shared_ptr<ServerContext> context;
};

Session::Session(std::shared_ptr<ServerContext> context, IoLoop* loop,
                 boost::asio::ip::tcp::socket socket, Port port)
    : context_(std::move(context)),
      loop_(loop),
      port_(port),
      socket_(std::move(socket)),
      fd_(socket_.native_handle()),
      parser_(context_->limits),
      input_(kInputBytes) {}

void Session::Start() {
  Lock lock(mutex_);
  deadline_ = After(context_->limits.idle_timeout);
  Advance(&lock);
}

void Session::Refuse() {
  Lock lock(mutex_);
  RespondAndClose(503, fmt::format("the server has its limit of {} connections open",
                                   context_->limits.max_connections));
  Advance(&lock);
}

void Session::Drain() {
  Lock lock(mutex_);
  const bool idle = state_ == State::kHead && !head_started_ && input_.empty();
  if (idle || state_ == State::kLinger) CloseLocked(&lock);
}

void Session::Close() {
  Lock lock(mutex_);
  CloseLocked(&lock);
}

void Session::Sweep(TimePoint now) {
  Lock lock(mutex_);
  if (now < deadline_) return;
  switch (state_) {
    case State::kHead:
      if (!head_started_) return CloseLocked(&lock);
      RespondAndClose(408, fmt::format("the request header took longer than {} ms",
                                       context_->limits.header_timeout.count()));
      return Advance(&lock);
    case State::kBody:
    case State::kChunks:
      RespondAndClose(408, fmt::format("no byte of the request body came for {} ms",
                                       context_->limits.body_timeout.count()));
      return Advance(&lock);
    case State::kStreaming:
    case State::kWriting:
    case State::kLinger:
      return CloseLocked(&lock);
    case State::kBroken:  // Advance() is on its way
    case State::kInflate:
    case State::kBusy:
    case State::kClosed:
      return;
  }
}

void Session::Advance(Lock* lock) {
  advancing_ = true;
  bool more = true;
  while (more) {
    switch (state_) {
      case State::kHead:
        more = ReadHead(lock);
        break;
      case State::kBody:
        more = ReadBody(lock);
        break;
      case State::kChunks:
        more = ReadChunks(lock);
        break;
      case State::kInflate:
        more = InflateSlice(lock);
        break;
      case State::kLinger:
        input_.Clear();
        if (context_->draining) CloseLocked(lock);
        more = false;
        break;
      case State::kBroken:
        CloseLocked(lock);
        more = false;
        break;
      case State::kBusy:
      case State::kStreaming:
      case State::kWriting:
      case State::kClosed:
        more = false;
        break;
    }
  }
  advancing_ = false;
  StartRead(lock);
}

bool Session::ReadHead(Lock* lock) {
  if (input_.empty()) {
    if (context_->draining && !head_started_) CloseLocked(lock);
    return false;
  }
  if (!head_started_) {
    head_started_ = true;
    deadline_ = After(context_->limits.header_timeout);
  }
  size_t consumed;
  const RequestParser::Progress progress = parser_.ReadHead(input_.view(), &consumed);
  input_.Consume(consumed);
  if (progress == RequestParser::Progress::kNeedMore) return false;
  if (progress == RequestParser::Progress::kFailed) {
    RespondAndClose(parser_.error_status(), parser_.error());
    return true;
  }
  BeginBody(lock);
  return true;
}

void Session::BeginBody(Lock* lock) {
  const RequestHead& head = parser_.head();
  const ServerLimits& limits = context_->limits;
  route_ = FindRoute(head.method, head.target, port_, limits);
  const bool has_body = head.chunked || head.content_length > 0;
  if (route_.endpoint == Endpoint::kNone) {
    close_after_ = has_body;
    return Respond(ErrorReply(route_.error_status, route_.error), route_.allow);
  }
  const bool compressed = head.coding != ContentCoding::kIdentity;
  const uint64_t json_bytes = head.json_length.value_or(compressed ? 0 : head.content_length);
  if (json_bytes > limits.max_json_bytes) {
    return RespondAndClose(413, fmt::format("the JSON of the request has {} bytes; the limit is {}",
                                            json_bytes, limits.max_json_bytes));
  }
  if (!has_body) return Dispatch(lock, {}, nullptr);
  deadline_ = After(limits.body_timeout);
  if (!head.chunked && !compressed && input_.view().size() >= head.content_length) {
    const std::string_view body = input_.view().substr(0, head.content_length);
    Dispatch(lock, body, nullptr);
    return;
  }
  if (!NewBody(head.chunked ? kChunkedBytes : head.content_length)) return;
  state_ = head.chunked ? State::kChunks : State::kBody;
  if (head.expect_continue && input_.empty()) {
    // 25 bytes into an empty socket buffer; a client that misses them sends the body anyway.
    ::send(fd_, kContinue.data(), kContinue.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

bool Session::NewBody(size_t capacity) {
  body_ =
      BodyBuffer::Create(capacity, parser_.head().json_length.value_or(0), context_->body_budget,
                         static_cast<int64_t>(context_->limits.max_buffered_bytes));
  if (body_ != nullptr) return true;
  RespondAndClose(503, TooManyBodies(context_->limits));
  return false;
}

bool Session::ReadBody(Lock* lock) {
  const size_t ready = std::min(body_->room(), input_.view().size());
  body_->Append(input_.view().substr(0, ready));
  input_.Consume(ready);
  if (body_->room() > 0) return false;
  EndBody(lock);
  return true;
}

// A larger body_ with the same bytes; false, and body_ as it was, where the budget is spent. Never
// while it is read into: only bodies of unknown length are copied.
bool Session::GrowBody(size_t capacity) {
  std::shared_ptr<BodyBuffer> grown =
      BodyBuffer::Create(capacity, parser_.head().json_length.value_or(0), context_->body_budget,
                         static_cast<int64_t>(context_->limits.max_buffered_bytes));
  if (grown == nullptr) return false;
  grown->Append(body_->view());
  body_ = std::move(grown);
  return true;
}

void Session::AppendToBody(std::string_view bytes) {
  if (too_large_) return;
  const size_t size = body_->view().size();
  if (body_->room() < bytes.size() && !GrowBody(std::max(size + bytes.size(), size * 2))) {
    too_large_ = true;
    return;
  }
  body_->Append(bytes);
}

bool Session::ReadChunks(Lock* lock) {
  const ServerLimits& limits = context_->limits;
  size_t consumed;
  const RequestParser::Progress progress = parser_.ReadChunks(
      input_.view(), &consumed, [this](std::string_view bytes) { AppendToBody(bytes); });
  input_.Consume(consumed);
  if (progress == RequestParser::Progress::kFailed) {
    RespondAndClose(parser_.error_status(), parser_.error());
    return true;
  }
  if (too_large_) {
    RespondAndClose(503, TooManyBodies(limits));
    return true;
  }
  const RequestHead& head = parser_.head();
  const bool compressed = head.coding != ContentCoding::kIdentity;
  const size_t json_bytes = head.json_length.value_or(compressed ? 0 : body_->view().size());
  if (json_bytes > limits.max_json_bytes) {
    RespondAndClose(413, fmt::format("the JSON of the request is larger than the limit of {} bytes",
                                     limits.max_json_bytes));
    return true;
  }
  if (progress == RequestParser::Progress::kNeedMore) return false;
  EndBody(lock);
  return true;
}

// The body is whole: on to the engine, or first to be decompressed.
void Session::EndBody(Lock* lock) {
  const RequestHead& head = parser_.head();
  if (head.coding == ContentCoding::kIdentity) {
    const std::shared_ptr<BodyBuffer> body = std::move(body_);
    return Dispatch(lock, body->view(), body);
  }
  compressed_ = std::move(body_);
  inflater_.emplace(head.coding, compressed_->view());
  deadline_ = TimePoint::max();
  state_ = State::kInflate;
  NewBody(std::min(LargestInflated(head, context_->limits) + 1,
                   std::max(kChunkedBytes, compressed_->view().size() * 2)));
}

// One slice, so that a body that grows a thousandfold does not hold up the other connections.
bool Session::InflateSlice(Lock* lock) {
  if (slice_posted_) return false;
  const size_t largest = LargestInflated(parser_.head(), context_->limits);
  const size_t size = body_->view().size();
  if (body_->room() == 0 && !GrowBody(std::min(largest + 1, size * 2))) {
    Respond(ErrorReply(503, TooManyBodies(context_->limits)));
    return true;
  }
  size_t written;
  const Inflater::Progress progress =
      inflater_->Inflate(body_->end(), std::min(body_->room(), kInflateSlice), &written);
  body_->Extend(written);
  if (body_->view().size() > largest) {
    Respond(ErrorReply(
        413,
        fmt::format("the request body decompresses to more than the limit of {} bytes", largest)));
    return true;
  }
  if (progress == Inflater::Progress::kFailed) {
    Respond(ErrorReply(400, inflater_->error()));
    return true;
  }
  if (progress == Inflater::Progress::kDone) {
    inflater_.reset();
    compressed_.reset();
    const std::shared_ptr<BodyBuffer> body = std::move(body_);
    Dispatch(lock, body->view(), body);
    return true;
  }
  slice_posted_ = true;
  boost::asio::post(loop_->io(), [self = shared_from_this()] {
    Lock guard(self->mutex_);
    self->slice_posted_ = false;
    if (self->state_ != State::kClosed) self->Advance(&guard);
  });
  return false;
}

// `body` lies in `owner`, or where that is null at the front of the input buffer.
void Session::Dispatch(Lock* lock, std::string_view body,
                       const std::shared_ptr<const void>& owner) {
  state_ = State::kBusy;
  deadline_ = TimePoint::max();
  in_flight_ = port_ == Port::kInference;
  if (in_flight_) ++context_->metrics.requests_in_flight;
  switch (route_.endpoint) {
    case Endpoint::kInfer:
    case Endpoint::kGenerate:
    case Endpoint::kGenerateStream:
      return Infer(lock, body, owner);
    case Endpoint::kLoad:
    case Endpoint::kUnload:
      RunInBackground(body);
      break;
    case Endpoint::kMetrics:
      Respond({200, context_->metrics.Render(), "text/plain; version=0.0.4; charset=utf-8"});
      break;
    default:
      Respond(Handle(context_->engine, route_, body, context_->draining));
      break;
  }
  if (owner == nullptr) input_.Consume(body.size());
}

StatusOr<InferRequest> Session::DecodeInfer(std::string_view body,
                                            const std::shared_ptr<const void>& owner) {
  const size_t json_bytes = parser_.head().json_length.value_or(body.size());
  CHAIRLIFT_ASSIGN_OR_RETURN(DecodedInfer decoded,
                             loop_->decoder().Decode(body, json_bytes, owner));
  format_ = std::move(decoded.format);
  return std::move(decoded.request);
}

StatusOr<InferRequest> Session::DecodeGenerate(std::string_view body) {
  if (parser_.head().json_length.value_or(body.size()) != body.size()) {
    return InvalidArgument("binary tensors are not part of the generate extension; use …/infer");
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const ModelMetadata model,
                             context_->engine.Metadata(route_.model, route_.version));
  CHAIRLIFT_ASSIGN_OR_RETURN(DecodedGenerate decoded,
                             loop_->generate_decoder().Decode(body, model));
  format_ = OutputFormat();
  generated_ = {model.name, model.version, decoded.request.id};
  without_batch_ = decoded.without_batch;
  told_.clear();
  events_.clear();
  events_sent_ = 0;
  stream_failed_ = false;
  if (route_.endpoint == Endpoint::kGenerateStream) {
    // Not a share of the session: the engine may keep this longer than the callback.
    decoded.request.on_parts = [session = weak_from_this()](std::span<const InferPart> parts) {
      if (const auto self = session.lock()) self->OnParts(parts);
    };
  }
  return std::move(decoded.request);
}

void Session::Infer(Lock* lock, std::string_view body, const std::shared_ptr<const void>& owner) {
  StatusOr<InferRequest> request =
      route_.endpoint == Endpoint::kInfer ? DecodeInfer(body, owner) : DecodeGenerate(body);
  if (owner == nullptr) input_.Consume(body.size());
  if (!request.ok()) return Respond(ErrorReply(request.status()));
  request->model = std::move(route_.model);
  request->version = std::move(route_.version);
  request_id_ = 0;
  with_engine_ = true;
  context_->calls.Add();

  lock->unlock();  // the callback may run before InferAsync returns
  const RequestId id = context_->engine.InferAsync(
      *std::move(request), [self = shared_from_this()](StatusOr<InferResponse> response) mutable {
        const CallGuard call(std::move(self));
        call.session->OnInferred(std::move(response));
      });
  lock->lock();
  request_id_ = id;
}

void Session::RunInBackground(std::string_view body) {
  context_->calls.Add();
  const bool accepted = context_->background.Run(
      [self = shared_from_this(), route = route_, text = std::string(body)]() mutable {
        const CallGuard call(std::move(self));
        call.session->OnHandled(Handle(call.context->engine, route, text, false));
      });
  if (accepted) return;
  context_->calls.Remove();
  Respond(ErrorReply(503, fmt::format("the limit of {} loads and unloads are waiting already",
                                      context_->limits.max_admin_requests)));
}

// Lets go of mutex_ for the system call: the engine may be about to answer.
void Session::StartRead(Lock* lock) {
  if (reading_ || state_ == State::kClosed) return;
  const bool into_body = state_ == State::kBody;
  if (!into_body && input_.room() == 0) {
    const bool growing = state_ == State::kHead || state_ == State::kChunks;
    input_.Reserve(growing ? context_->limits.max_header_bytes + kInputBytes : kInputBytes);
    if (input_.room() == 0) return;  // the answer under way resumes reading
  }
  reading_ = true;
  input_.Pin(!into_body);
  const std::shared_ptr<BodyBuffer> target = into_body ? body_ : nullptr;
  const boost::asio::mutable_buffer room =
      into_body ? boost::asio::buffer(body_->end(), body_->room())
                : boost::asio::buffer(input_.room_begin(), input_.room());
  lock->unlock();
  socket_.async_read_some(
      room, [self = shared_from_this(), target](const boost::system::error_code& ec, size_t bytes) {
        self->OnRead(target != nullptr, static_cast<bool>(ec), bytes);
      });
}

void Session::OnRead(bool into_body, bool failed, size_t bytes) {
  Lock lock(mutex_);
  reading_ = false;
  input_.Pin(false);
  if (state_ == State::kClosed) return;
  if (failed) {
    if (state_ == State::kBusy || state_ == State::kStreaming) {
      ++context_->metrics.requests_disconnected;
    }
    if (state_ != State::kWriting) return CloseLocked(&lock);
    close_after_ = true;  // it may have closed its sending half only
    return;
  }
  if (into_body && state_ == State::kBody) {
    body_->Extend(bytes);
  } else if (!into_body) {
    input_.Extend(bytes);
  }
  if (state_ == State::kBody || state_ == State::kChunks) {
    deadline_ = After(context_->limits.body_timeout);
  }
  Advance(&lock);
}

// The caller holds a reference to the session beside the loop's.
void Session::CloseLocked(Lock* lock) {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  boost::system::error_code ignored;
  socket_.close(ignored);
  ReleaseAnswer();
  const bool cancel = with_engine_;
  lock->unlock();  // the callback may run inside Cancel
  if (cancel) context_->engine.Cancel(request_id_);
  loop_->Remove(this);
  lock->lock();
  if (port_ == Port::kInference) {
    --context_->metrics.connections;
    if (in_flight_) --context_->metrics.requests_in_flight;
  }
  context_->connections(port_).Remove();
}

}  // namespace chairlift::http
