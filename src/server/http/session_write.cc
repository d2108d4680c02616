// The state machine of a connection: sending answers.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <ctime>
#include <tuple>
#include <utility>

#include "base/status.h"
#include "chairlift/text.h"
#include "server/http/response_head.h"
#include "server/http/session.h"
#include "server/http/session_call.h"
#include "server/protocol/request.h"

namespace chairlift::http {
namespace {

// Larger JSON is formatted by the codec pool, to keep workers free.
constexpr int64_t kInlineJsonElements = 4096;
constexpr size_t kBytesAnElement = 8;        // of JSON, about
constexpr size_t kMostPieces = 1024;         // IOV_MAX
constexpr size_t kTurnBytes = 1 << 20;       // written before other connections get their turn
constexpr size_t kBytesPerSend = 256 << 10;  // per system call
constexpr size_t kKeepTextBytes = 64 << 10;
constexpr size_t kLargeBytes = 1 << 20;  // slow to free
constexpr std::chrono::milliseconds kLinger{2000};
constexpr std::string_view kNoMemoryAnswer =
    "HTTP/1.1 503 Service Unavailable\r\n"
    "Content-Length: 52\r\n"
    "Content-Type: application/json\r\n"
    "Connection: close\r\n"
    "\r\n"
    R"({"error":"the server has no memory for the request"})";
static_assert(kNoMemoryAnswer.substr(kNoMemoryAnswer.find('{')).size() == 52);

// Whether a missing model is reported before other errors of a request.
bool AsksOfModel(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kModelMetadata:
    case Endpoint::kModelReady:
    case Endpoint::kModelConfig:
    case Endpoint::kModelStatistics:
    case Endpoint::kInfer:
    case Endpoint::kGenerate:
    case Endpoint::kGenerateStream:
      return true;
    default:
      return false;
  }
}

// Between events that are sent together.
constexpr std::string_view kEventSeparator = "\n\ndata: ";

// Whether the socket has room now.
bool TakesMore(int fd) {
  pollfd room{.fd = fd, .events = POLLOUT, .revents = 0};
  return ::poll(&room, 1, 0) > 0;
}

}  // namespace

void Session::OnInferred(StatusOr<InferResponse>&& response) noexcept {
  Run([&](Lock*) {
    with_engine_ = false;
    if (response.ok()) context_->service.metrics().Answered(*response);
    if (state_ != State::kBusy && state_ != State::kStreaming) return;  // the client is gone
    text_.clear();
    binary_.clear();
    const bool generates =
        route_.endpoint == Endpoint::kGenerate || route_.endpoint == Endpoint::kGenerateStream;
    if (response.ok() && generates) response->model = generated_.model;  // its name for clients
    if (!response.ok()) {
      FinishInfer(response.status(), {});
    } else if (ElementsOf(*response) <= kInlineJsonElements) {
      const Status encoded = EncodeAnswer(*response, &text_, &binary_);
      FinishInfer(encoded, *std::move(response));
    } else {
      EncodeOnPool(*std::move(response));
    }
    if (!advancing_ && !with_thread_) ResumeOnLoop();
  });
}

int64_t Session::ElementsOf(const InferResponse& response) const {
  return IsOfTexts(route_.endpoint) ? TextElements(response, text_format_)
                                    : JsonElements(response, format_);
}

void Session::EncodeOnPool(InferResponse response) {
  const auto bytes = static_cast<size_t>(ElementsOf(response)) * kBytesAnElement;
  RunOnPool(bytes, [this, response = std::move(response)](Decoders&) mutable {
    std::string text;
    std::vector<int> binary;
    const Status encoded = EncodeAnswer(response, &text, &binary);
    Lock lock(mutex_);
    with_thread_ = false;
    if (state_ != State::kBusy && state_ != State::kStreaming) return;  // the client is gone
    text_ = std::move(text);
    binary_ = std::move(binary);
    FinishInfer(encoded, std::move(response));
    ResumeOnLoop();
  });
}

void Session::OnHandled(Reply reply) noexcept {
  Run([&](Lock*) {
    with_thread_ = false;
    if (state_ != State::kBusy) return;
    Respond(std::move(reply));
    ResumeOnLoop();
  });
}

Status Session::EncodeAnswer(const InferResponse& response, std::string* text,
                             std::vector<int>* binary) const {
  if (InfersTexts(route_.endpoint)) {
    return EncodeTexts(route_.endpoint, response, text_format_, text);
  }
  switch (route_.endpoint) {
    case Endpoint::kCompletions:
    case Endpoint::kChatCompletions:
      if (!completion_.stream) return EncodeCompletion(response, completion_, text);
      if (stream_failed_) return absl::OkStatus();
      return EncodeCompletionEnd(response, completion_, kEventSeparator, text);
    case Endpoint::kInfer:
      return EncodeInfer(response, format_, text, binary);
    case Endpoint::kGenerate:
      return EncodeGenerated(response, {}, omitted_, text).status();
    default: {
      if (stream_failed_) return absl::OkStatus();
      CHAIRLIFT_ASSIGN_OR_RETURN(const bool any,
                                 EncodeGenerated(response, streamed_, omitted_, text));
      if (!any) text->clear();  // everything was sent in parts
      return absl::OkStatus();
    }
  }
}

void Session::FinishInfer(const Status& encoded, InferResponse&& response) {
  if (Streams()) return FinishStream(encoded);
  if (!encoded.ok()) return Respond(ErrorReply(context_->service.Explain(encoded)));
  response_ = std::move(response);
  ResponseHead head;
  head.content_type = binary_.empty() ? "application/json" : "application/octet-stream";
  head.content_length = text_.size();
  if (!binary_.empty()) head.json_length = text_.size();
  pieces_.assign(2, iovec{});
  for (const int index : binary_) {
    Tensor& tensor = response_.outputs[static_cast<size_t>(index)].tensor;
    if (tensor.dtype() == DType::kBytes) tensor = protocol::BytesFromTexts(tensor);
    if (tensor.byte_size() == 0) continue;
    head.content_length += tensor.byte_size();
    pieces_.push_back({tensor.raw(), tensor.byte_size()});
  }
  BeginWrite(head);
}

void Session::Respond(Reply reply, std::string_view allow) {
  if (!reply.error.empty() && IsOfTexts(route_.endpoint)) {
    reply.body = TextError(route_.endpoint, &reply.status, reply.error);
  }
  text_ = std::move(reply.body);
  ResponseHead head;
  head.status = reply.status;
  head.retry_after_s = reply.retry_after_s;
  head.content_type = reply.content_type;
  head.content_length = text_.size();
  head.allow = allow;
  pieces_.assign(2, iovec{});
  if (parser_.head().method == "HEAD") pieces_.pop_back();
  BeginWrite(head);
}

void Session::RespondAndClose(int status, std::string_view message) {
  close_after_ = true;
  if (status == 413 && AsksOfModel(route_.endpoint)) {  // no size would be correct
    const Status known = context_->service.engine().Metadata(route_.model, route_.version).status();
    if (absl::IsNotFound(known)) return Respond(ErrorReply(context_->service.Explain(known)));
  }
  Respond(ErrorReply(status, message));
}

// Adds the fields that depend on the request and the time.
void Session::AppendHead(ResponseHead head, std::string* out) const {
  const RequestHead& request = parser_.head();
  head.http_1_0 = request.http_1_0;
  head.date = std::time(nullptr);
  if (port_ == Port::kInference) head.allow_origin = context_->cors.Allowed(request.origin);
  head.preflight = request.preflight;
  AppendResponseHead(head, out);
}

// pieces_[0] is for the head, pieces_[1] for the text (none after HEAD), the others are tensors.
void Session::BeginWrite(ResponseHead head) {
  const RequestHead& request = parser_.head();
  if (!request.keep_alive || context_->service.draining()) close_after_ = true;
  head.keep_alive = !close_after_;
  head_.clear();
  AppendHead(head, &head_);
  pieces_[0] = {head_.data(), head_.size()};
  if (pieces_.size() > 1) pieces_[1] = {text_.data(), text_.size()};
  SendAnswer(head.status);
}

// Does not allocate.
void Session::RespondNoMemory() noexcept {
  close_after_ = true;
  pieces_.assign(1, {const_cast<char*>(kNoMemoryAnswer.data()), kNoMemoryAnswer.size()});
  try {
    SendAnswer(503);
  } catch (const std::exception&) {
    if (state_ != State::kWriting) state_ = State::kBroken;
  }
}

// pieces_[0] begins with the head; its first probed_bytes_ have been sent.
void Session::SendAnswer(int status) {
  const size_t probed = std::exchange(probed_bytes_, 0);
  pieces_[0] = {static_cast<char*>(pieces_[0].iov_base) + probed, pieces_[0].iov_len - probed};
  next_piece_ = 0;
  answer_waits_ = false;
  UncountRequest();
  state_ = State::kWriting;
  if (body_ != nullptr) FreeBody();
  if (port_ == Port::kInference) context_->metrics.Responded(status);
  if (access_ == nullptr) BeginAccess();  // for a request with an incomplete header
  if (access_ != nullptr) {
    access_->status = status;
    access_->bytes = probed;
    for (const iovec& piece : pieces_) access_->bytes += piece.iov_len;
  }
  Write();
}

// As much as one turn allows.
void Session::Write() {
  size_t turn = kTurnBytes;
  while (next_piece_ < pieces_.size()) {
    if (turn == 0) {
      if (!TakesMore(fd_) && !HoldAnswer()) {
        state_ = State::kBroken;
        return;
      }
      PaceAnswer(kTurnBytes);
      return WaitToWrite();
    }
    const size_t most = std::min(turn, kBytesPerSend);
    size_t count = 0;
    size_t bytes = 0;
    while (bytes < most && next_piece_ + count < pieces_.size() && count < kMostPieces) {
      bytes += pieces_[next_piece_ + count++].iov_len;
    }
    iovec& last = pieces_[next_piece_ + count - 1];
    const size_t beyond = bytes > most ? bytes - most : 0;
    last.iov_len -= beyond;
    msghdr message{};
    message.msg_iov = &pieces_[next_piece_];
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    const int error = errno;
    last.iov_len += beyond;
    if (sent < 0 && error == EINTR) continue;
    if (sent < 0) {
      const bool full = error == EAGAIN || error == EWOULDBLOCK;
      if (!full || !HoldAnswer()) {
        state_ = State::kBroken;
        return;
      }
      PaceAnswer(kTurnBytes - turn);
      return WaitToWrite();
    }
    auto left = static_cast<size_t>(sent);
    turn -= left;
    while (next_piece_ < pieces_.size() && left >= pieces_[next_piece_].iov_len) {
      left -= pieces_[next_piece_].iov_len;
      ++next_piece_;
    }
    if (left > 0) {
      iovec& piece = pieces_[next_piece_];
      piece = {static_cast<char*>(piece.iov_base) + left, piece.iov_len - left};
    }
  }
  OnWritten();
}

// `bytes` were written, and more of the answer is left.
void Session::PaceAnswer(size_t bytes) {
  const TimePoint now = Clock::Steady().Now();
  const bool waited = std::exchange(answer_waits_, true);
  deadline_ = waited ? pace_.Moved(deadline_, bytes, now) : pace_.Start(now);
}

// Counts what the socket does not accept yet in the server's budget; false if that is used up.
bool Session::HoldAnswer() {
  if (held_bytes_ > 0) return true;
  for (size_t i = next_piece_; i < pieces_.size(); ++i) {
    held_bytes_ += static_cast<int64_t>(pieces_[i].iov_len);
  }
  if (client_->bytes->Take(held_bytes_) == nullptr) return true;
  held_bytes_ = 0;
  return false;
}

// Most answers were never held, and this then accesses no shared counter.
void Session::ReleaseAnswer() {
  if (held_bytes_ > 0) client_->bytes->Give(std::exchange(held_bytes_, 0));
}

void Session::WaitToWrite() {
  if (waiting_to_write_) return;
  try {
    boost::asio::post(
        loop_->io(), [self = shared_from_this()] { self->Run([&](Lock*) { self->AwaitRoom(); }); });
  } catch (const std::bad_alloc&) {
    stalled_ = true;
  }
}

// On the io thread.
void Session::AwaitRoom() {
  const bool writing = state_ == State::kWriting || state_ == State::kStreaming;
  if (!writing || waiting_to_write_) return;
  socket_.async_wait(boost::asio::ip::tcp::socket::wait_write,
                     [self = shared_from_this()](const boost::system::error_code& ec) {
                       self->Run([&](Lock* lock) {
                         self->waiting_to_write_ = false;
                         if (self->state_ == State::kClosed) return;
                         if (ec) return self->CloseLocked(lock);
                         self->Resume(lock);
                       });
                     });
  waiting_to_write_ = true;
}

void Session::OnWritten() {
  ReleaseAnswer();
  FreeAnswer();
  pieces_.clear();
  answered_ = true;
  EndAccess("");
  if (close_after_) return EndSending(context_->closing ? kLinger / 4 : kLinger);
  parser_.Reset();
  route_ = Route();
  head_started_ = false;
  state_ = State::kHead;
  deadline_ = Clock::Steady().Now() + context_->limits.idle_timeout;
}

// Large memory is freed on a thread of the pool.
void Session::FreeBody() noexcept {
  if (body_ != nullptr && body_->capacity() >= kLargeBytes) {
    context_->codecs.Free(std::move(body_));
  }
  body_.reset();
}

void Session::FreeAnswer() noexcept {
  size_t bytes = text_.capacity() + events_.capacity();
  for (const NamedTensor& output : response_.outputs) bytes += output.tensor.byte_size();
  if (bytes >= kLargeBytes) {
    context_->codecs.Free(std::tuple(std::exchange(response_, {}), std::exchange(text_, {}),
                                     std::exchange(events_, {})));
    return;
  }
  response_ = InferResponse();
  if (text_.capacity() > kKeepTextBytes) text_ = std::string();
  events_.clear();
  if (events_.capacity() > kKeepTextBytes) events_ = std::string();
}

}  // namespace chairlift::http
