// What the metrics port tells: the server's own counters and, at each scrape, the engine's.
#ifndef CHAIRLIFT_SERVER_METRICS_H_
#define CHAIRLIFT_SERVER_METRICS_H_

#include <atomic>
#include <memory>
#include <string>

#include "chairlift/engine.h"

namespace chairlift {

// Thread-safe.
class ServerMetrics {
 public:
  explicit ServerMetrics(const Engine& engine);
  ~ServerMetrics();

  // Times of a request that was answered, into the histograms of its model. Answers from the
  // response cache are not in them.
  void Answered(const InferResponse& response);
  // A response left with this status.
  void Responded(int http_status);

  std::atomic<int64_t> connections{0};            // open
  std::atomic<int64_t> connections_refused{0};    // since start, over the limit
  std::atomic<int64_t> requests_in_flight{0};     // read and not yet answered
  std::atomic<int64_t> requests_disconnected{0};  // cancelled because their client went away

  // In Prometheus' text format.
  std::string Render() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_SERVER_METRICS_H_
