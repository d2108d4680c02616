// What all connections of a server share.
#ifndef CHAIRLIFT_SERVER_HTTP_SERVER_CONTEXT_H_
#define CHAIRLIFT_SERVER_HTTP_SERVER_CONTEXT_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "base/background.h"
#include "chairlift/engine.h"
#include "server/http/body_buffer.h"
#include "server/http/router.h"
#include "server/limits.h"
#include "server/metrics.h"

namespace chairlift::http {

// Counts that somebody waits to see at zero. Thread-safe.
class Tally {
 public:
  void Add() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++count_;
  }
  void Remove() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--count_ == 0) zero_.notify_all();
  }
  int count() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return count_;
  }
  void AwaitZero() {
    std::unique_lock<std::mutex> lock(mutex_);
    zero_.wait(lock, [this] { return count_ == 0; });
  }
  // False where it was not zero in time.
  bool AwaitZero(std::chrono::milliseconds timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    return zero_.wait_for(lock, timeout, [this] { return count_ == 0; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable zero_;
  int count_ = 0;
};

struct ServerContext {
  ServerContext(Engine& served, const ServerLimits& server_limits)
      : engine(served),
        limits(server_limits),
        metrics(served),
        background(static_cast<size_t>(server_limits.max_admin_requests)) {}

  Tally& connections(Port port) { return connections_by_port[static_cast<int>(port)]; }

  Engine& engine;
  const ServerLimits limits;
  ServerMetrics metrics;
  std::atomic<bool> draining{false};
  std::shared_ptr<BodyBudget> body_budget = std::make_shared<BodyBudget>(0);
  std::array<Tally, 2> connections_by_port;
  Tally calls;            // into the engine, whose callbacks have not ended yet
  Background background;  // last: its tasks use the others
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_SERVER_CONTEXT_H_
