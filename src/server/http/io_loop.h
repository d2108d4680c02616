// One io thread: its event loop, its connections and the timer that watches their deadlines, and
// its decoders. Included by the few files that see Asio.
#ifndef CHAIRLIFT_SERVER_HTTP_IO_LOOP_H_
#define CHAIRLIFT_SERVER_HTTP_IO_LOOP_H_

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/http/generate_codec.h"
#include "server/http/oip_codec.h"
#include "server/limits.h"

namespace chairlift::http {

class Session;

// All but io(), Start() and Stop() on the loop's own thread only.
class IoLoop {
 public:
  explicit IoLoop(const ServerLimits& limits);
  ~IoLoop();

  boost::asio::io_context& io() { return io_; }
  void Start();
  // Ends the thread once nothing is left to do: every session and acceptor must be closed.
  void Stop();

  InferDecoder& decoder() { return decoder_; }
  GenerateDecoder& generate_decoder() { return generate_decoder_; }
  void Add(const std::shared_ptr<Session>& session);
  void Remove(const Session* session);
  // A copy: sessions may leave while the caller walks it.
  std::vector<std::shared_ptr<Session>> sessions() const;

 private:
  void ScheduleSweep();

  const std::chrono::milliseconds sweep_every_;
  InferDecoder decoder_;
  GenerateDecoder generate_decoder_;
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::steady_timer sweep_timer_;
  absl::flat_hash_map<const Session*, std::shared_ptr<Session>> sessions_;
  std::thread thread_;
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_IO_LOOP_H_
