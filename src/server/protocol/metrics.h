// The metrics port: the front ends' counters and, at each scrape, the engine's.
#ifndef CHAIRLIFT_SERVER_PROTOCOL_METRICS_H_
#define CHAIRLIFT_SERVER_PROTOCOL_METRICS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "chairlift/engine.h"

namespace chairlift::protocol {

// For one transport. Thread-safe.
struct TransportMetrics {
  static constexpr int kCodes = 600;

  explicit TransportMetrics(std::string transport) : name(std::move(transport)) {}
  // A response was sent with this code, in the transport's own numbers.
  void Responded(int code);

  const std::string name;                         // "http", as part of the metrics' names
  std::atomic<int64_t> connections{0};            // open
  std::atomic<int64_t> connections_refused{0};    // since start, over the limit
  std::atomic<int64_t> requests_in_flight{0};     // read and not yet answered
  std::atomic<int64_t> requests_disconnected{0};  // cancelled because their client went away
  std::array<std::atomic<uint64_t>, kCodes> responses{};
};

// Other servers whose names of metrics are served beside ours.
struct OtherNames {
  bool triton = false;
  bool vllm = false;
};

// Thread-safe except for AddTransport().
class Metrics {
 public:
  explicit Metrics(const Engine& engine, const OtherNames& names = {});
  ~Metrics();

  // For another transport; valid as long as this. Call it before the first Render().
  TransportMetrics& AddTransport(std::string name);

  // Adds the times of an answered request to the histograms of its model. Answers from the response
  // cache are not included.
  void Answered(const InferResponse& response);

  // In Prometheus' text format.
  std::string Render() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::deque<TransportMetrics> transports_;
};

}  // namespace chairlift::protocol

#endif  // CHAIRLIFT_SERVER_PROTOCOL_METRICS_H_
