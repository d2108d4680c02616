// One io thread: its event loop, its connections and the timer that watches their deadlines, and
// its decoders. Included by the few files that use Asio.
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

// All but io(), OnSweep(), Start() and Stop() on the loop's own thread only. A handler that throws
// bad_alloc ends; the loop goes on, and the next sweep retries what was left.
class IoLoop {
 public:
  explicit IoLoop(const ServerLimits& limits);
  ~IoLoop();

  boost::asio::io_context& io() { return io_; }
  void Start();
  // Ends the thread once nothing is left to do: every session and acceptor must be closed.
  void Stop();

  // Before Start(): `task` runs at each sweep.
  void OnSweep(std::function<void()> task) { on_sweep_.push_back(std::move(task)); }

  Decoders& decoders() { return decoders_; }
  void Add(const std::shared_ptr<Session>& session);
  void Remove(const Session* session);
  // A copy: sessions may leave while the caller walks it.
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
