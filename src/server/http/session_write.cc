// The state machine of a connection: answering.
#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <utility>

#include "base/status.h"
#include "server/http/response_head.h"
#include "server/http/session.h"

namespace chairlift::http {
namespace {

// More JSON than this is formatted on the io thread: a worker has better things to do.
constexpr int64_t kInlineJsonElements = 4096;
constexpr size_t kMostPieces = 1024;  // IOV_MAX
constexpr size_t kKeepTextBytes = 64 << 10;
constexpr std::chrono::milliseconds kLinger{2000};

}  // namespace

void Session::OnInferred(StatusOr<InferResponse> response) {
  const Lock lock(mutex_);
  with_engine_ = false;
  if (response.ok()) context_->metrics.Answered(*response);
  if (state_ != State::kBusy && state_ != State::kStreaming) return;  // the client is gone
  inferred_.emplace(std::move(response));
  const bool here = !inferred_->ok() || JsonElements(**inferred_, format_) <= kInlineJsonElements;
  if (here) FinishInfer();
  if (!here || !advancing_) ResumeOnLoop();
}

void Session::OnHandled(Reply reply) {
  const Lock lock(mutex_);
  if (state_ != State::kBusy) return;
  Respond(std::move(reply));
  if (!advancing_) ResumeOnLoop();
}

// Wakes the io thread where something is left that only it may do.
void Session::ResumeOnLoop() {
  const bool nothing_left =
      state_ == State::kHead && reading_ && input_.empty() && !context_->draining;
  if (nothing_left) return;
  boost::asio::post(loop_->io(), [self = shared_from_this()] {
    Lock lock(self->mutex_);
    const bool busy = self->state_ == State::kBusy || self->state_ == State::kStreaming;
    if (self->inferred_.has_value() && busy) self->FinishInfer();
    if (self->state_ == State::kWriting) self->Write();
    if (self->state_ != State::kClosed) self->Advance(&lock);
  });
}

void Session::FinishInfer() {
  StatusOr<InferResponse> inferred = *std::move(inferred_);
  inferred_.reset();
  if (route_.endpoint == Endpoint::kGenerateStream) return FinishStream(std::move(inferred));
  if (!inferred.ok()) return Respond(ErrorReply(inferred.status()));
  text_.clear();
  binary_.clear();
  const Status encoded = EncodeAnswer(*inferred);
  if (!encoded.ok()) return Respond(ErrorReply(encoded));

  response_ = *std::move(inferred);
  ResponseHead head;
  head.content_type = binary_.empty() ? "application/json" : "application/octet-stream";
  head.content_length = text_.size();
  if (!binary_.empty()) head.json_length = text_.size();
  pieces_.assign(2, iovec{});
  for (const int index : binary_) {
    Tensor& tensor = response_.outputs[static_cast<size_t>(index)].tensor;
    if (tensor.byte_size() == 0) continue;
    head.content_length += tensor.byte_size();
    pieces_.push_back({tensor.raw(), tensor.byte_size()});
  }
  BeginWrite(head);
}

Status Session::EncodeAnswer(const InferResponse& response) {
  if (route_.endpoint == Endpoint::kInfer) {
    return EncodeInfer(response, format_, &text_, &binary_);
  }
  return EncodeGenerated(response, {}, without_batch_, &text_).status();
}

void Session::Respond(Reply reply, std::string_view allow) {
  text_ = std::move(reply.body);
  ResponseHead head;
  head.status = reply.status;
  head.content_type = reply.content_type;
  head.content_length = text_.size();
  head.allow = allow;
  pieces_.assign(2, iovec{});
  if (parser_.head().method == "HEAD") pieces_.pop_back();
  BeginWrite(head);
}

void Session::RespondAndClose(int status, std::string_view message) {
  close_after_ = true;
  Respond(ErrorReply(status, message));
}

// pieces_[0] is for the head, pieces_[1] for the text (none after HEAD), the others are tensors.
void Session::BeginWrite(ResponseHead head) {
  const RequestHead& request = parser_.head();
  if (!request.keep_alive || context_->draining) close_after_ = true;
  head.keep_alive = !close_after_;
  head.http_1_0 = request.http_1_0;
  head_.clear();
  AppendResponseHead(head, &head_);
  pieces_[0] = {head_.data(), head_.size()};
  if (pieces_.size() > 1) pieces_[1] = {text_.data(), text_.size()};
  next_piece_ = 0;
  if (port_ == Port::kInference) context_->metrics.Responded(head.status);
  if (std::exchange(in_flight_, false)) --context_->metrics.requests_in_flight;
  state_ = State::kWriting;
  body_.reset();
  inflater_.reset();
  compressed_.reset();
  Write();
}

void Session::Write() {
  while (next_piece_ < pieces_.size()) {
    msghdr message{};
    message.msg_iov = &pieces_[next_piece_];
    message.msg_iovlen = std::min(pieces_.size() - next_piece_, kMostPieces);
    const ssize_t sent = ::sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      const bool full = errno == EAGAIN || errno == EWOULDBLOCK;
      if (!full || !HoldAnswer()) {
        state_ = State::kBroken;
        return;
      }
      deadline_ = Clock::Steady().Now() + context_->limits.body_timeout;
      return WaitToWrite();
    }
    auto left = static_cast<size_t>(sent);
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

// Counts what the socket does not take yet against the server's budget; false where that is spent.
bool Session::HoldAnswer() {
  if (held_bytes_ > 0) return true;
  for (size_t i = next_piece_; i < pieces_.size(); ++i) {
    held_bytes_ += static_cast<int64_t>(pieces_[i].iov_len);
  }
  const int64_t held = context_->body_budget->fetch_add(held_bytes_) + held_bytes_;
  return held <= static_cast<int64_t>(context_->limits.max_buffered_bytes);
}

void Session::ReleaseAnswer() {
  context_->body_budget->fetch_sub(held_bytes_);
  held_bytes_ = 0;
}

void Session::WaitToWrite() {
  boost::asio::post(loop_->io(), [self = shared_from_this()] {
    const Lock guard(self->mutex_);
    const bool writing = self->state_ == State::kWriting || self->state_ == State::kStreaming;
    if (!writing || self->waiting_to_write_) return;
    self->waiting_to_write_ = true;
    self->socket_.async_wait(boost::asio::ip::tcp::socket::wait_write,
                             [self](const boost::system::error_code& ec) {
                               Lock lock(self->mutex_);
                               self->waiting_to_write_ = false;
                               if (self->state_ == State::kClosed) return;
                               if (ec) return self->CloseLocked(&lock);
                               if (self->state_ == State::kWriting) self->Write();
                               if (self->state_ == State::kStreaming) self->SendEvents();
                               self->Advance(&lock);
                             });
  });
}

void Session::OnWritten() {
  ReleaseAnswer();
  response_ = InferResponse();
  pieces_.clear();
  if (text_.capacity() > kKeepTextBytes) text_ = std::string();
  events_.clear();
  if (events_.capacity() > kKeepTextBytes) events_ = std::string();
  const TimePoint now = Clock::Steady().Now();
  if (close_after_) {
    ::shutdown(fd_, SHUT_WR);
    state_ = State::kLinger;
    deadline_ = now + kLinger;
    return;
  }
  parser_.Reset();
  head_started_ = false;
  state_ = State::kHead;
  deadline_ = now + context_->limits.idle_timeout;
}

}  // namespace chairlift::http
