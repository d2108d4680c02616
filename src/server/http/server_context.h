// State shared by all connections of a server.
#ifndef CHAIRLIFT_SERVER_HTTP_SERVER_CONTEXT_H_
#define CHAIRLIFT_SERVER_HTTP_SERVER_CONTEXT_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "server/http/codec_pool.h"
#include "server/http/cors.h"
#include "server/http/router.h"
#include "server/http/site_policy.h"
#include "server/limits.h"
#include "server/protocol/service.h"

namespace chairlift::http {

// A counter that can be waited on to reach zero. Thread-safe.
class Tally {
 public:
  void Add() { ++count_; }
  void Remove() {
    int left = count_;
    while (left > 1 && !count_.compare_exchange_weak(left, left - 1)) {
    }
    if (left > 1) return;
    // Under the lock, because a waiting thread may destroy this once it is 0.
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--count_ == 0) zero_.notify_all();
  }
  int count() const { return count_; }
  void AwaitZero() {
    std::unique_lock<std::mutex> lock(mutex_);
    zero_.wait(lock, [this] { return count_ == 0; });
  }
  // False if it did not reach zero in time.
  bool AwaitZero(std::chrono::milliseconds timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    return zero_.wait_for(lock, timeout, [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable zero_;
  std::atomic<int> count_{0};  // reaches 0 only under mutex_
};

struct ServerContext {
  ServerContext(protocol::Service& served, const ServerLimits& server_limits,
                const std::vector<std::string>& cors_origins, SitePolicy site_policy,
                int codec_threads)
      : service(served),
        metrics(served.metrics().AddTransport("http")),
        limits(server_limits),
        cors(cors_origins),
        sites(std::move(site_policy)),
        // A connection has one task for a request, and memory to free.
        codecs(codec_threads, 4 * static_cast<size_t>(limits.max_connections) + 1024, limits) {}

  Tally& connections(Port port) { return connections_by_port[static_cast<int>(port)]; }

  protocol::Service& service;
  protocol::TransportMetrics& metrics;
  const ServerLimits limits;
  const CorsPolicy cors;
  const SitePolicy sites;
  bool http_metrics = false;         // also on the HTTP port
  int metrics_port = -1;             // −1: none. Both are set before there are connections
  std::atomic<bool> closing{false};  // the last phase of draining: no connection waits for requests
  std::array<Tally, 2> connections_by_port;
  Tally calls;       // into the engine or other threads, not yet ended
  CodecPool codecs;  // its tasks use the others
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_SERVER_CONTEXT_H_
