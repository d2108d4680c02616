// One connection: reads requests, hands them to the engine, writes the answers in order.
#ifndef CHAIRLIFT_SERVER_HTTP_SESSION_H_
#define CHAIRLIFT_SERVER_HTTP_SESSION_H_

#include <sys/uio.h>

#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/clock.h"
#include "chairlift/engine.h"
#include "server/http/adaptive_mutex.h"
#include "server/http/body_buffer.h"
#include "server/http/generate_codec.h"
#include "server/http/handlers.h"
#include "server/http/inflate.h"
#include "server/http/input_buffer.h"
#include "server/http/io_loop.h"
#include "server/http/oip_codec.h"
#include "server/http/request_parser.h"
#include "server/http/response_head.h"
#include "server/http/server_context.h"

namespace chairlift::http {

// Public functions on the io thread only. One request is worked on at a time; bytes of the next
// wait in the input buffer. The engine's callback writes the answer from the engine's thread where
// that takes one system call and little formatting, so that no other thread needs to wake up;
// mutex_ guards everything that this touches. It spins because the next request often comes while
// the answer's system call is still returning.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<ServerContext> context, IoLoop* loop, boost::asio::ip::tcp::socket socket,
          Port port);

  void Start();
  // Answers 503 without reading, and closes.
  void Refuse();
  // No further request: closes now, or after the one under way.
  void Drain();
  // Cancels the request under way and closes.
  void Close();
  // Acts on a deadline that has passed.
  void Sweep(TimePoint now);

 private:
  enum class State {
    kHead,       // reading a header, or waiting for one
    kBody,       // reading a body of known length
    kChunks,     // reading a chunked body
    kInflate,    // undoing the compression of a body, a slice at a time
    kBusy,       // the engine, or the background thread, has the request
    kStreaming,  // likewise, and the head of a stream of events is out
    kWriting,    // the socket takes no more for now
    kBroken,     // the answer cannot be sent; the io thread is to close
    kLinger,     // answered and shut down; waits for the client to close
    kClosed,
  };
  using Lock = std::unique_lock<AdaptiveMutex>;
  struct CallGuard;

  // All below with mutex_ held (`lock` where it is let go in between).
  void Advance(Lock* lock);   // the last thing to do: may let go of the lock
  bool ReadHead(Lock* lock);  // each returns false where it needs more bytes
  bool ReadBody(Lock* lock);
  bool ReadChunks(Lock* lock);
  void BeginBody(Lock* lock);
  bool NewBody(size_t capacity);
  void EndBody(Lock* lock);
  bool InflateSlice(Lock* lock);
  void AppendToBody(std::string_view bytes);
  bool GrowBody(size_t capacity);
  void Dispatch(Lock* lock, std::string_view body, const std::shared_ptr<const void>& owner);
  void Infer(Lock* lock, std::string_view body, const std::shared_ptr<const void>& owner);
  StatusOr<InferRequest> DecodeInfer(std::string_view body,
                                     const std::shared_ptr<const void>& owner);
  StatusOr<InferRequest> DecodeGenerate(std::string_view body);
  void RunInBackground(std::string_view body);

  void StartRead(Lock* lock);
  void OnRead(bool into_body, bool failed, size_t bytes);

  void OnInferred(StatusOr<InferResponse> response);  // takes mutex_ itself; any thread
  void OnHandled(Reply reply);                        // takes mutex_ itself; any thread
  void FinishInfer();
  Status EncodeAnswer(const InferResponse& response);

  void OnParts(std::span<const InferPart> parts);  // takes mutex_ itself; any thread
  void StartStream();
  void AppendEvents(std::string_view events);
  void SendEvents();
  void FinishStream(StatusOr<InferResponse> response);
  void Respond(Reply reply, std::string_view allow = {});
  void RespondAndClose(int status, std::string_view message);
  void BeginWrite(ResponseHead head);
  void Write();
  void WaitToWrite();
  bool HoldAnswer();
  void ReleaseAnswer();
  void OnWritten();
  void ResumeOnLoop();

  void CloseLocked(Lock* lock);

  const std::shared_ptr<ServerContext> context_;
  IoLoop* const loop_;
  const Port port_;

  AdaptiveMutex mutex_;
  boost::asio::ip::tcp::socket socket_;
  const int fd_;
  State state_ = State::kHead;
  TimePoint deadline_ = TimePoint::max();

  // Reading.
  RequestParser parser_;
  InputBuffer input_;
  std::shared_ptr<BodyBuffer> body_;
  std::shared_ptr<BodyBuffer> compressed_;  // what inflater_ reads
  std::optional<Inflater> inflater_;
  Route route_;
  bool head_started_ = false;
  bool reading_ = false;    // a read is under way
  bool advancing_ = false;  // Advance() is on the io thread's stack
  bool slice_posted_ = false;
  bool too_large_ = false;  // a chunked body outgrew the budget

  // The request with the engine.
  OutputFormat format_;
  RequestId request_id_ = 0;
  bool with_engine_ = false;                         // request_id_ may be cancelled
  bool in_flight_ = false;                           // counted as such
  std::optional<StatusOr<InferResponse>> inferred_;  // waits for the io thread to write it

  // Of /generate and /generate_stream.
  GeneratedHead generated_;
  bool without_batch_ = false;
  std::set<std::string> told_;  // outputs that came in parts
  std::string events_;          // chunks on their way
  size_t events_sent_ = 0;      // bytes of them that the socket has taken
  bool stream_failed_ = false;  // an event has said so

  // Writing.
  std::string head_;
  std::string text_;
  InferResponse response_;  // owns the tensors being written
  std::vector<int> binary_;
  absl::InlinedVector<iovec, 8> pieces_;
  size_t next_piece_ = 0;
  int64_t held_bytes_ = 0;  // of an answer that waits for the socket, in the budget
  bool close_after_ = false;
  bool waiting_to_write_ = false;
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_SESSION_H_
