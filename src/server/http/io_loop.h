// One io thread: its event loop, its connections with the timer for their deadlines, and its
// decoders. Included only by the few files that use Asio.
#ifndef CHAIRLIFT_SERVER_HTTP_IO_LOOP_H_
#define CHAIRLIFT_SERVER_HTTP_IO_LOOP_H_

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/http/codec_pool.h"
#include "server/limits.h"

namespace chairlift::http {

class Session;

// All except io(), OnSweep(), Start() and Stop() must be called on the loop's own thread. A handler
// that throws bad_alloc ends; the loop continues, and the next sweep retries unfinished work.
class IoLoop {
 public:
  explicit IoLoop(const ServerLimits& limits);
  ~IoLoop();

  boost::asio::io_context& io() { return io_; }
  void Start();
  // Ends the thread once nothing is left to do: every session and acceptor must be closed.
  void Stop();

  // Call it before Start(): `task` runs at each sweep.
  void OnSweep(std::function<void()> task) { on_sweep_.push_back(std::move(task)); }

  Decoders& decoders() { return decoders_; }
  void Add(const std::shared_ptr<Session>& session);
  void Remove(const Session* session);
  // A copy, because sessions may be removed while the caller iterates.
  std::vector<std::shared_ptr<Session>> sessions() const;

 private:
  void Run();
  void ScheduleSweep();
  void Sweep();

  const std::chrono::milliseconds sweep_every_;
  Decoders decoders_;
  std::vector<std::function<void()>> on_sweep_;
  bool sweep_scheduled_ = false;
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::steady_timer sweep_timer_;
  absl::flat_hash_map<const Session*, std::shared_ptr<Session>> sessions_;
  std::thread thread_;
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_IO_LOOP_H_
