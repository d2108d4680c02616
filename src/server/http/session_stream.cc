// The state machine of a connection: answers in parts, as server-sent events.
//
// Events are sent from the engine's thread as they come, with one system call for all that are
// ready. What the socket does not accept waits here and never blocks the engine. It is bounded by
// the answer, and counted in the server's budget.
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "base/status.h"
#include "server/http/json_writer.h"
#include "server/http/response_head.h"
#include "server/http/session.h"
#include "server/http/session_call.h"

namespace chairlift::http {
namespace {

constexpr std::string_view kEvent = "data: ";
constexpr std::string_view kEventEnd = "\n\n";
constexpr std::string_view kEventAndStreamEnd = "\n\n\r\n0\r\n\r\n";
constexpr std::string_view kStreamEnd = "0\r\n\r\n";

void AppendEvent(std::string_view json, std::string* events) {
  events->append(kEvent);
  events->append(json);
  events->append(kEventEnd);
}

}  // namespace

Status Session::EncodePart(const InferPart& part, std::string* text) const {
  return Completes(route_.endpoint) ? EncodeCompletionPart(completion_, part, text)
                                    : EncodeGeneratedPart(generated_, part, text);
}

std::string Session::ErrorEvent(const Status& status) const {
  if (!IsOfTexts(route_.endpoint)) return ErrorBody(Message(status));
  Reply reply = ErrorReply(context_->service.Explain(status));
  return TextError(route_.endpoint, &reply.status, reply.error);
}

void Session::OnParts(std::span<const InferPart> parts) noexcept {
  Run([&](Lock*) {
    if (state_ != State::kBusy && state_ != State::kStreaming) return;  // the client is gone
    if (stream_failed_) return;
    std::string events;
    for (const InferPart& part : parts) {
      text_.clear();
      const Status encoded = EncodePart(part, &text_);
      stream_failed_ = !encoded.ok();
      AppendEvent(encoded.ok() ? text_ : ErrorEvent(encoded), &events);
      if (stream_failed_) break;
      for (const NamedTensor& output : part.outputs) streamed_.insert(output.name);
    }
    if (state_ == State::kBusy) StartStream();
    AppendEvents(events);
    SendEvents();
    if (state_ == State::kBroken && !advancing_) ResumeOnLoop();
  });
}

void Session::StartStream() {
  const RequestHead& request = parser_.head();
  if (!request.keep_alive || request.http_1_0 || context_->service.draining()) close_after_ = true;
  ResponseHead head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.unbounded = true;
  head.keep_alive = !close_after_;
  events_.clear();
  AppendHead(head, &events_);
  events_.erase(0, std::exchange(probed_bytes_, 0));
  context_->metrics.Responded(head.status);
  if (access_ != nullptr) {
    access_->status = head.status;
    access_->bytes = events_.size();
  }
  state_ = State::kStreaming;
}

// One chunk.
void Session::AppendEvents(std::string_view events) {
  if (events.empty()) return;
  if (access_ != nullptr) access_->bytes += events.size();
  const bool chunked = !parser_.head().http_1_0;
  if (chunked) fmt::format_to(std::back_inserter(events_), FMT_COMPILE("{:x}\r\n"), events.size());
  events_.append(events);
  if (chunked) events_.append("\r\n");
}

void Session::SendEvents() {
  const size_t begun = events_sent_;
  while (events_sent_ < events_.size()) {
    const ssize_t taken = ::send(fd_, events_.data() + events_sent_, events_.size() - events_sent_,
                                 MSG_DONTWAIT | MSG_NOSIGNAL);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
      state_ = State::kBroken;
      return;
    }
    if (taken < 0) break;
    events_sent_ += static_cast<size_t>(taken);
  }
  const size_t moved = events_sent_ - begun;
  // Drops the bytes that were sent, without moving the rest each time.
  if (events_sent_ > events_.size() / 2) {
    events_.erase(0, events_sent_);
    events_sent_ = 0;
  }
  const auto left = static_cast<int64_t>(events_.size() - events_sent_);
  unsent_ = left;
  client_->bytes->Give(std::exchange(held_bytes_, 0));
  if (left == 0) {
    deadline_ = TimePoint::max();
    return;
  }
  if (client_->bytes->Take(left) != nullptr) {
    state_ = State::kBroken;
    return;
  }
  held_bytes_ = left;
  const TimePoint now = Clock::Steady().Now();
  const bool waited = deadline_ != TimePoint::max();
  deadline_ = waited ? pace_.Moved(deadline_, moved, now) : pace_.Start(now);
  WaitToWrite();
}

// The remaining events, one with text_ unless that is empty, and the end.
void Session::FinishStream(const Status& status) {
  if (state_ == State::kBusy) {
    if (!status.ok()) return Respond(ErrorReply(context_->service.Explain(status)));
    StartStream();
  }
  if (stream_failed_) text_.clear();
  if (!status.ok() && !stream_failed_) text_ = ErrorEvent(status);
  const bool chunked = !parser_.head().http_1_0;
  head_.clear();
  if (!text_.empty() && chunked) {
    fmt::format_to(std::back_inserter(head_), FMT_COMPILE("{:x}\r\n"),
                   kEvent.size() + text_.size() + kEventEnd.size());
  }
  if (!text_.empty()) head_.append(kEvent);
  std::string_view end = chunked ? kEventAndStreamEnd : kEventEnd;
  if (text_.empty()) end = chunked ? kStreamEnd : std::string_view();
  UncountRequest();
  ReleaseAnswer();
  pieces_.assign({{events_.data() + events_sent_, events_.size() - events_sent_},
                  {head_.data(), head_.size()},
                  {text_.data(), text_.size()},
                  {const_cast<char*>(end.data()), end.size()}});
  if (access_ != nullptr) access_->bytes += head_.size() + text_.size() + end.size();
  next_piece_ = 0;
  answer_waits_ = false;
  state_ = State::kWriting;
  Write();
}

}  // namespace chairlift::http
