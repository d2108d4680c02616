// The state machine of a connection: answers that come in parts, as server-sent events.
//
// Events go out from the engine's thread as they come, one system call for all that are ready. What
// the socket does not take waits here, and never holds up the engine: it is bounded by the answer,
// and counted against the server's budget.
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "base/status.h"
#include "server/http/json_writer.h"
#include "server/http/response_head.h"
#include "server/http/session.h"

namespace chairlift::http {
namespace {

void AppendEvent(std::string_view json, std::string* events) {
  events->append("data: ");
  events->append(json);
  events->append("\n\n");
}

}  // namespace

void Session::OnParts(std::span<const InferPart> parts) {
  const Lock lock(mutex_);
  if (state_ != State::kBusy && state_ != State::kStreaming) return;  // the client is gone
  if (stream_failed_) return;
  std::string events;
  for (const InferPart& part : parts) {
    text_.clear();
    const Status encoded = EncodeGeneratedPart(generated_, part, &text_);
    stream_failed_ = !encoded.ok();
    AppendEvent(encoded.ok() ? text_ : ErrorBody(Message(encoded)), &events);
    if (stream_failed_) break;
    for (const NamedTensor& output : part.outputs) told_.insert(output.name);
  }
  if (state_ == State::kBusy) StartStream();
  AppendEvents(events);
  SendEvents();
  if (state_ == State::kBroken && !advancing_) ResumeOnLoop();
}

void Session::StartStream() {
  const RequestHead& request = parser_.head();
  if (!request.keep_alive || request.http_1_0 || context_->draining) close_after_ = true;
  ResponseHead head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.unbounded = true;
  head.keep_alive = !close_after_;
  head.http_1_0 = request.http_1_0;
  AppendResponseHead(head, &events_);
  context_->metrics.Responded(head.status);
  state_ = State::kStreaming;
}

// One chunk.
void Session::AppendEvents(std::string_view events) {
  if (events.empty()) return;
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
  const bool moved = events_sent_ > begun || held_bytes_ == 0;
  // What is sent goes, but not at the price of moving the rest each time.
  if (events_sent_ > events_.size() / 2) {
    events_.erase(0, events_sent_);
    events_sent_ = 0;
  }
  const auto left = static_cast<int64_t>(events_.size() - events_sent_);
  const int64_t more = left - std::exchange(held_bytes_, left);
  const int64_t held = context_->body_budget->fetch_add(more) + more;
  if (left == 0) {
    deadline_ = TimePoint::max();
    return;
  }
  if (held > static_cast<int64_t>(context_->limits.max_buffered_bytes)) {
    state_ = State::kBroken;
    return;
  }
  if (moved) deadline_ = Clock::Steady().Now() + context_->limits.body_timeout;
  WaitToWrite();
}

void Session::FinishStream(StatusOr<InferResponse> response) {
  std::string event;
  Status failed = response.status();
  if (response.ok() && !stream_failed_) {
    text_.clear();
    const StatusOr<bool> any = EncodeGenerated(*response, told_, without_batch_, &text_);
    failed = any.status();
    if (any.ok() && *any) AppendEvent(text_, &event);
  }
  if (state_ == State::kBusy) {
    if (!failed.ok()) return Respond(ErrorReply(failed));
    StartStream();
  }
  if (!failed.ok() && !stream_failed_) AppendEvent(ErrorBody(Message(failed)), &event);
  AppendEvents(event);
  if (!parser_.head().http_1_0) events_.append("0\r\n\r\n");
  if (std::exchange(in_flight_, false)) --context_->metrics.requests_in_flight;
  ReleaseAnswer();
  pieces_.assign(1, {events_.data() + events_sent_, events_.size() - events_sent_});
  next_piece_ = 0;
  state_ = State::kWriting;
  Write();
}

}  // namespace chairlift::http
