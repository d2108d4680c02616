// The state machine of a connection: its steps, reading from the socket, and its end. Bodies,
// requests and answers are in the other session_*.cc.
#include "server/http/session.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "base/status.h"
#include "server/http/session_call.h"

namespace chairlift::http {
namespace {

constexpr size_t kInputBytes = 8192;
// Bytes of a body to read before other connections get their turn.
constexpr size_t kReadBytes = 256 << 10;
constexpr size_t kLargeBodyBytes = 1 << 20;       // slow to free
constexpr std::string_view kProbe = "HTTP/1.1 ";  // every answer begins with it
// For a request that is in transit to a connection that must end.
constexpr std::chrono::milliseconds kLastChance{1000};
constexpr std::chrono::milliseconds kIdleLinger{500};
constexpr std::string_view kComment = ":\n\n";  // in a stream of events, without effect

TimePoint After(std::chrono::milliseconds delay) { return Clock::Steady().Now() + delay; }

}  // namespace

Session::Session(std::shared_ptr<ServerContext> context, IoLoop* loop,
                 boost::asio::ip::tcp::socket socket, Port port,
                 std::shared_ptr<protocol::Client> client)
    : context_(std::move(context)),
      loop_(loop),
      port_(port),
      client_(std::move(client)),
      pace_{context_->limits.body_timeout, context_->limits.min_transfer_rate},
      socket_(std::move(socket)),
      fd_(socket_.native_handle()),
      parser_(context_->limits),
      input_(kInputBytes) {
  if (port_ == Port::kInference) {
    ++context_->metrics.connections;
    ++client_->connections;
  }
  context_->connections(port_).Add();
}

Session::~Session() { Uncount(); }  // one that never reached its loop

void Session::Uncount() {
  if (!std::exchange(counted_, false)) return;
  UncountRequest();
  if (port_ == Port::kInference) {
    --context_->metrics.connections;
    --client_->connections;
  }
  context_->connections(port_).Remove();
}

void Session::Start() {
  Run([this](Lock* lock) {
    deadline_ = After(context_->closing ? kLastChance : context_->limits.idle_timeout);
    Advance(lock);
  });
}

void Session::Refuse(int status, std::string_view message) {
  Run([&](Lock* lock) {
    RespondAndClose(status, message);
    Advance(lock);
  });
}

void Session::Drain() {
  Run([this](Lock*) {
    if (state_ != State::kHead || head_started_ || port_ != Port::kInference) return;
    EndIfClosing();
    deadline_ = std::min(deadline_, After(kLastChance));
  });
}

bool Session::RefuseUnread() {
  bool refused = false;
  Run([&](Lock* lock) {
    const bool head = state_ == State::kHead && head_started_;
    refused = head || state_ == State::kBody || state_ == State::kChunks;
    if (!refused) return;
    RespondAndClose(503, "the server stops, and the request has not come whole");
    Advance(lock);
  });
  return refused;
}

// Ends the connection if no request has started and it must not wait for another.
void Session::EndIfClosing() {
  const bool ends = context_->closing && port_ == Port::kInference;
  if (ends && answered_ && !head_started_) EndIdle();
}

// Ends the connection if no request is in the socket: closing would reset a request in transit.
void Session::EndIdle() {
  char byte;
  if (::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0) return;  // the next read takes it
  EndSending(kIdleLinger);
}

// Reads and drops what the client still sends, so that the connection is not reset.
void Session::EndSending(std::chrono::milliseconds linger) {
  ::shutdown(fd_, SHUT_WR);
  state_ = State::kLinger;
  deadline_ = After(linger);
}

void Session::Close() {
  Run([this](Lock* lock) { CloseLocked(lock); });
}

void Session::Sweep(TimePoint now) {
  {
    // Another thread is using this connection: the next sweep tries again.
    const Lock free(mutex_, std::try_to_lock);
    if (!free.owns_lock()) return;
  }
  Run([&](Lock* lock) {
    if (std::exchange(stalled_, false)) Resume(lock);
    const bool under_way = state_ == State::kBusy || state_ == State::kStreaming;
    if (under_way && !reading_ && HungUp()) {
      ++context_->metrics.requests_disconnected;
      return CloseLocked(lock);
    }
    if (now < deadline_) return;
    switch (state_) {
      case State::kHead:
        if (!head_started_) return EndIdle();
        RespondAndClose(408, fmt::format("the request header took longer than {} ms",
                                         context_->limits.header_timeout.count()));
        return Advance(lock);
      case State::kBody:
      case State::kChunks:
        if (deadline_ < pace_.Start(body_read_at_)) {
          RespondAndClose(
              408, fmt::format("the request body was slower than the least rate of {} bytes/s",
                               context_->limits.min_transfer_rate));
        } else {
          RespondAndClose(408, fmt::format("no byte of the request body arrived for {} ms",
                                           context_->limits.body_timeout.count()));
        }
        return Advance(lock);
      case State::kBusy:
        return ProbeClient();
      case State::kStreaming:
      case State::kWriting:
      case State::kLinger:
        return CloseLocked(lock);
      case State::kBroken:  // Advance() will run
      case State::kClosed:
        return;
    }
  });
}

// Nothing here may throw.
void Session::OutOfMemory(Lock* lock) noexcept {
  if (!lock->owns_lock()) lock->lock();
  advancing_ = false;
  stalled_ = state_ != State::kClosed;
  const bool under_way = with_engine_ || with_thread_;
  switch (state_) {
    case State::kBusy:
      if (under_way) return;
      [[fallthrough]];
    case State::kHead:
    case State::kBody:
    case State::kChunks:
      return RespondNoMemory();
    case State::kStreaming:
      if (!under_way) state_ = State::kBroken;
      return;
    case State::kWriting:
    case State::kBroken:
    case State::kLinger:
    case State::kClosed:
      return;
  }
}

void Session::ThreadFailed() noexcept {
  Lock lock(mutex_);
  with_thread_ = false;
  OutOfMemory(&lock);
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
      case State::kLinger:
        input_.Clear();
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

// Continues after an answer, or after a lack of memory.
void Session::Resume(Lock* lock) {
  if (state_ == State::kWriting) Write();
  if (state_ == State::kStreaming) SendEvents();
  if (state_ != State::kClosed) Advance(lock);
}

// Wakes the io thread if there is work that only it may do.
void Session::ResumeOnLoop() {
  const bool nothing_left =
      state_ == State::kHead && reading_ && input_.empty() && !context_->closing;
  if (nothing_left) return;
  try {
    boost::asio::post(loop_->io(), [self = shared_from_this()] {
      self->Run([&](Lock* lock) { self->Resume(lock); });
    });
  } catch (const std::bad_alloc&) {
    stalled_ = true;
  }
}

// Releases mutex_ for the system call: the engine may be about to answer.
void Session::StartRead(Lock* lock) {
  if (reading_ || state_ == State::kClosed) return;
  if (ended_) {
    const bool wants_more = state_ == State::kHead || state_ == State::kBody ||
                            state_ == State::kChunks || state_ == State::kLinger;
    if (wants_more) CloseLocked(lock);
    return;
  }
  std::shared_ptr<BodyBuffer> into = state_ == State::kBody ? body_ : nullptr;
  if (into == nullptr && input_.room() == 0) {
    const bool growing = state_ == State::kHead || state_ == State::kChunks;
    input_.Reserve(growing ? context_->limits.max_header_bytes + kInputBytes : kInputBytes);
    if (input_.room() == 0) return;  // the current answer resumes reading
  }
  reading_ = true;
  input_.Pin(into == nullptr);
  const boost::asio::mutable_buffer room =
      into != nullptr ? boost::asio::buffer(into->end(), std::min(into->room(), kReadBytes))
                      : boost::asio::buffer(input_.room_begin(), input_.room());
  lock->unlock();
  try {
    socket_.async_read_some(room, [self = shared_from_this(), into](
                                      const boost::system::error_code& ec, size_t bytes) mutable {
      self->Run([&](Lock* held) { self->OnRead(held, std::move(into), ec, bytes); });
    });
  } catch (const std::bad_alloc&) {
    lock->lock();
    reading_ = false;
    input_.Pin(false);
    throw;
  }
}

void Session::OnRead(Lock* lock, std::shared_ptr<BodyBuffer> into,
                     const boost::system::error_code& ec, size_t bytes) {
  reading_ = false;
  if (into == nullptr) input_.Extend(bytes);  // before Pin(), which may move the buffer
  input_.Pin(false);
  if (state_ == State::kClosed) {
    if (into != nullptr && into->capacity() >= kLargeBodyBytes)
      context_->codecs.Free(std::move(into));
    return;
  }
  const bool under_way = state_ == State::kBusy || state_ == State::kStreaming;
  ended_ = ec == boost::asio::error::eof;
  if (ec && !ended_) {
    if (under_way) ++context_->metrics.requests_disconnected;
    return CloseLocked(lock);
  }
  if (ended_ && state_ == State::kBusy) deadline_ = After(context_->limits.closed_client_probe);
  if (ended_ && state_ == State::kStreaming) {
    AppendEvents(kComment);
    SendEvents();
  }
  if (state_ == State::kBody || state_ == State::kChunks) {
    body_read_at_ = Clock::Steady().Now();
    deadline_ = pace_.Moved(deadline_, bytes, body_read_at_);
  }
  if (into != nullptr && state_ == State::kBody) {
    const ByteBudget* const lacking = body_->Extend(bytes);
    if (lacking != nullptr) RefuseBody(lacking);
  }
  into.reset();
  Advance(lock);
}

// The client has reset the connection: both directions are shut.
bool Session::HungUp() const {
  pollfd waits{.fd = fd_, .events = 0, .revents = 0};
  return ::poll(&waits, 1, 0) > 0 && (waits.revents & (POLLERR | POLLHUP)) != 0;
}

// The client has either closed only its sending half and may still read, or has closed everything.
// Sending bytes tells which: a closed connection answers with a reset. (A stream of events gets a
// comment.)
void Session::ProbeClient() {
  deadline_ = TimePoint::max();
  const ssize_t sent = ::send(fd_, kProbe.data(), kProbe.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent > 0) probed_bytes_ = static_cast<size_t>(sent);
}

// The caller holds a reference to the session in addition to the loop's. Nothing here may throw.
void Session::CloseLocked(Lock* lock) noexcept {
  if (state_ == State::kClosed) return;
  EndAccess(", cut off");
  const bool may_free = state_ != State::kBusy && state_ != State::kStreaming;
  state_ = State::kClosed;
  boost::system::error_code ignored;
  socket_.close(ignored);
  ReleaseAnswer();
  FreeBody();
  if (may_free) FreeAnswer();  // otherwise the thread that has the request writes it
  const bool cancel = with_engine_;
  lock->unlock();  // the callback may run inside Cancel
  if (cancel) {
    try {
      context_->service.engine().Cancel(request_id_);
    } catch (const std::bad_alloc&) {
      // Its answer is dropped.
    }
  }
  loop_->Remove(this);
  lock->lock();
  Uncount();
}

}  // namespace chairlift::http
