// A request in the hands of a thread other than the io thread.
#ifndef CHAIRLIFT_SERVER_HTTP_SESSION_CALL_H_
#define CHAIRLIFT_SERVER_HTTP_SESSION_CALL_H_

#include <exception>
#include <memory>
#include <new>
#include <utility>

#include "server/http/session.h"

namespace chairlift::http {

// Counted among the server's calls from its construction (kCounted: from before) to its end.
// Releases the session before that: the last owner destroys the socket, which needs the loop alive.
class Session::Call {
 public:
  enum Counting { kNotCounted, kCounted };

  explicit Call(std::shared_ptr<Session> session, Counting counting = kNotCounted)
      : session_(std::move(session)), context_(session_->context_) {
    if (counting == kNotCounted) context_->calls.Add();
  }
  Call(Call&&) = default;
  Call& operator=(Call&&) = delete;
  ~Call() {
    session_.reset();
    if (context_ != nullptr) context_->calls.Remove();
  }

  Session* get() const { return session_.get(); }
  Session* operator->() const { return get(); }

 private:
  std::shared_ptr<Session> session_;
  std::shared_ptr<ServerContext> context_;
};

template <typename Step>
void Session::Run(Step step) noexcept {
  Lock lock(mutex_);
  try {
    step(&lock);
  } catch (const std::exception&) {
    OutOfMemory(&lock);
  }
}

template <typename Task>
bool Session::RunOnPool(size_t bytes, Task task) {
  with_thread_ = true;
  bool accepted = false;
  try {
    accepted = context_->codecs.Run(
        [call = Call(shared_from_this()), task = std::move(task)](Decoders& decoders) mutable {
          Session* const self = call.get();
          try {
            task(decoders);
          } catch (const std::exception&) {
            self->ThreadFailed();
          }
        },
        client_->number, bytes);
  } catch (const std::bad_alloc&) {
    with_thread_ = false;
    throw;
  }
  if (accepted) return true;
  with_thread_ = false;
  Respond(ErrorReply(503, "too many large requests wait to be read; retry later"));
  return false;
}

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_SESSION_CALL_H_
