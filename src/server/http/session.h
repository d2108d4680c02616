// One connection: reads requests, passes them to the engine, and writes the answers in order.
#ifndef CHAIRLIFT_SERVER_HTTP_SESSION_H_
#define CHAIRLIFT_SERVER_HTTP_SESSION_H_

#include <sys/uio.h>

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/adaptive_mutex.h"
#include "base/clock.h"
#include "chairlift/engine.h"
#include "server/http/access_log.h"
#include "server/http/body_buffer.h"
#include "server/http/completion_codec.h"
#include "server/http/generate_codec.h"
#include "server/http/handlers.h"
#include "server/http/inflate.h"
#include "server/http/input_buffer.h"
#include "server/http/io_loop.h"
#include "server/http/oip_codec.h"
#include "server/http/request_parser.h"
#include "server/http/response_head.h"
#include "server/http/server_context.h"
#include "server/http/text_codec.h"
#include "server/http/transfer_pace.h"

namespace chairlift::http {

// Public functions run on the io thread only. One request is handled at a time; bytes of the next
// wait in the input buffer. Work in proportion to a request is done on a thread of the codec pool,
// without mutex_. If an answer needs one system call and little formatting, the engine's callback
// writes it from the engine's thread, so that no other thread has to wake up. mutex_ guards
// everything that this accesses. It spins because the next request often arrives while the answer's
// system call is returning.
//
// If memory runs out, a request is answered with 503 and its connection closed. A step that failed
// to allocate is retried by the next sweep.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<ServerContext> context, IoLoop* loop, boost::asio::ip::tcp::socket socket,
          Port port, std::shared_ptr<protocol::Client> client);
  ~Session();

  void Start();
  // Answers with an error without reading, and closes.
  void Refuse(int status, std::string_view message);
  // When the server is closing: ends the connection now, or after a request that is being handled
  // or has been sent already.
  void Drain();
  // Answers an incomplete request with 503; false if there is none.
  bool RefuseUnread();
  // Cancels the current request and closes.
  void Close();
  // Handles expired deadlines, disconnected clients, and steps to retry.
  void Sweep(TimePoint now);

 private:
  enum class State {
    kHead,       // reading a header, or waiting for one
    kBody,       // reading a body of known length
    kChunks,     // reading a chunked body
    kBusy,       // the engine or another thread has the request
    kStreaming,  // the same, and the head of a stream of events was sent
    kWriting,    // the socket's buffer is full
    kBroken,     // the answer cannot be sent; the io thread must close
    kLinger,     // answered and shut down; waits for the client to close
    kClosed,
  };
  using Lock = std::unique_lock<AdaptiveMutex>;
  class Call;
  struct Compressed;

  // Runs `step(&lock)` with mutex_ held, and OutOfMemory() if it throws.
  template <typename Step>
  void Run(Step step) noexcept;
  void OutOfMemory(Lock* lock) noexcept;
  void ThreadFailed() noexcept;  // takes mutex_; for the thread that had the request
  // Runs `task(decoders)` on a thread of the pool, without mutex_. False if the request was
  // answered with 503 instead.
  template <typename Task>
  bool RunOnPool(size_t bytes, Task task);

  // Everything below is called with mutex_ held (`lock` if it is released in between), unless it
  // says otherwise.
  void Advance(Lock* lock);   // must be the last call: may release the lock
  bool ReadHead(Lock* lock);  // each returns false if it needs more bytes
  bool ReadBody(Lock* lock);
  bool ReadChunks(Lock* lock);
  std::optional<Reply> RefusalOfRoute() const;
  void BeginBody(Lock* lock);
  bool NewBody(size_t capacity);
  void EndBody(Lock* lock);
  bool CheckSize(size_t json_bytes, size_t bytes);
  void AppendChunk(std::string_view bytes);
  void RefuseBody(const ByteBudget* lacking);  // null: no memory
  void InflateOnPool(Compressed compressed);
  void AnswerFromPool(Reply reply);  // without mutex_

  void Dispatch(Lock* lock, std::string_view body, const std::shared_ptr<BodyBuffer>& owner);
  bool CountRequest();
  void UncountRequest();
  void Infer(Lock* lock, std::string_view body, const std::shared_ptr<BodyBuffer>& owner);
  bool Reserve(std::string_view body, const UnreadBody& unread);
  InferRequest::Caller Caller() const;
  void InferOnPool(const std::shared_ptr<BodyBuffer>& body);
  StatusOr<InferRequest> Decode(Decoders& decoders, std::string_view body,
                                const std::shared_ptr<const void>& owner);
  StatusOr<DecodedInfer> DecodeRawInfer(std::string_view body,
                                        const std::shared_ptr<const void>& owner) const;
  Reply RefusalOf(const Status& body) const;
  StatusOr<InferRequest> DecodeTexts(TextDecoder& decoder, std::string_view body);
  StatusOr<InferRequest> DecodeCompletion(CompletionDecoder& decoder, std::string_view body);
  StatusOr<InferRequest> DecodeGenerate(GenerateDecoder& decoder, std::string_view body);
  StatusOr<ModelMetadata> GeneratingModel(std::string_view body);
  void BeginParts(InferRequest* request);
  bool Streams() const;
  void Submit(Lock* lock, StatusOr<InferRequest>&& request);
  void HandleOnPool(std::string_view body);
  void LoadInBackground(std::string_view body);

  void StartRead(Lock* lock);
  void OnRead(Lock* lock, std::shared_ptr<BodyBuffer> into, const boost::system::error_code& ec,
              size_t bytes);
  bool HungUp() const;
  void ProbeClient();
  void EndIfClosing();
  void EndIdle();
  void EndSending(std::chrono::milliseconds linger);

  void OnInferred(StatusOr<InferResponse>&& response) noexcept;  // takes mutex_; any thread
  void OnHandled(Reply reply) noexcept;                          // takes mutex_; any thread
  // Encodes the response into `*text` and `*binary`. Needs no mutex_ while the request is being
  // handled. For a stream: what was not sent in parts, possibly nothing.
  Status EncodeAnswer(const InferResponse& response, std::string* text,
                      std::vector<int>* binary) const;
  int64_t ElementsOf(const InferResponse& response) const;  // number of elements in its JSON
  void EncodeOnPool(InferResponse response);
  void FinishInfer(const Status& encoded,
                   InferResponse&& response);  // text_ and binary_ are set

  Status EncodePart(const InferPart& part, std::string* text) const;
  std::string ErrorEvent(const Status& status) const;
  void OnParts(std::span<const InferPart> parts) noexcept;  // takes mutex_; any thread
  void StartStream();
  void AppendEvents(std::string_view events);
  void SendEvents();
  void FinishStream(const Status& status);  // text_ is set
  void Respond(Reply reply, std::string_view allow = {});
  void RespondAndClose(int status, std::string_view message);
  void AppendHead(ResponseHead head, std::string* out) const;
  void RespondNoMemory() noexcept;
  void BeginWrite(ResponseHead head);
  void SendAnswer(int status);
  void Write();
  void PaceAnswer(size_t bytes);
  void WaitToWrite();
  void AwaitRoom();
  bool HoldAnswer();
  void ReleaseAnswer();
  void OnWritten();
  void Resume(Lock* lock);
  void ResumeOnLoop();

  void FreeBody() noexcept;
  void FreeAnswer() noexcept;
  void Uncount();
  void CloseLocked(Lock* lock) noexcept;

  void BeginAccess();
  void EndAccess(const char* end) noexcept;

  const std::shared_ptr<ServerContext> context_;
  IoLoop* const loop_;
  const Port port_;
  const std::shared_ptr<protocol::Client> client_;
  const TransferPace pace_;

  AdaptiveMutex mutex_;
  boost::asio::ip::tcp::socket socket_;
  const int fd_;
  State state_ = State::kHead;
  TimePoint deadline_ = TimePoint::max();
  bool counted_ = true;   // it is counted among the connections
  bool stalled_ = false;  // a sweep must take the next step

  // Reading.
  RequestParser parser_;
  InputBuffer input_;
  std::shared_ptr<BodyBuffer> body_;
  Route route_;
  TimePoint body_read_at_;               // when body bytes were last read
  const ByteBudget* lacking_ = nullptr;  // for a chunked body
  bool no_memory_ = false;               // for a chunked body
  bool head_started_ = false;
  bool answered_ = false;    // a request was answered on this connection
  bool reading_ = false;     // a read is in progress
  bool advancing_ = false;   // Advance() is on the io thread's stack
  bool ended_ = false;       // the client has closed its sending half, or everything
  size_t probed_bytes_ = 0;  // bytes of the answer's head that were sent to detect a closed client

  // The request in the engine.
  OutputFormat format_;
  TextFormat text_format_;
  CompletionFormat completion_;
  RequestId request_id_ = 0;
  std::shared_ptr<Admission> place_;  // until the request is parsed
  uint64_t submitted_ = 0;            // number of requests; request_id_ is that of the last
  bool with_engine_ = false;          // request_id_ may be cancelled
  bool with_thread_ = false;          // a thread of the codec pool or the background has it
  bool in_flight_ = false;            // it is counted as in flight

  // For /generate and /generate_stream, and for streamed completions.
  GeneratedHead generated_;
  OmittedDims omitted_;
  std::set<std::string> streamed_;   // outputs that were sent in parts
  std::string events_;               // chunks to be sent
  size_t events_sent_ = 0;           // bytes of them that were sent
  std::atomic<int64_t> unsent_ = 0;  // bytes that were not sent
  bool stream_failed_ = false;       // an error event was sent

  std::unique_ptr<Access> access_;  // if it will be logged

  // Writing.
  std::string head_;
  std::string text_;
  InferResponse response_;  // owns the tensors being written
  std::vector<int> binary_;
  absl::InlinedVector<iovec, 8> pieces_;
  size_t next_piece_ = 0;
  int64_t held_bytes_ = 0;  // of an answer that waits for the socket, counted in the budget
  bool answer_waits_ = false;
  bool close_after_ = false;
  bool waiting_to_write_ = false;
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_SESSION_H_
