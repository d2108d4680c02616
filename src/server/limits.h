// Bounds on everything that a client controls. Each has its own error.
#ifndef CHAIRLIFT_SERVER_LIMITS_H_
#define CHAIRLIFT_SERVER_LIMITS_H_

#include <chrono>
#include <cstddef>

#include "server/protocol/limits.h"

namespace chairlift {

// The bounds of every protocol, and those of HTTP connections. If an answer exceeds
// max_buffered_bytes, its connection is closed.
struct ServerLimits : protocol::Limits {
  int max_connections = 4096;                 // open at the same time; one more: 503, closed
  int max_client_connections = 2048;          // per client; one more: 429, closed
  size_t max_header_bytes = 16 << 10;         // request line and fields: 431
  size_t max_body_bytes = size_t{256} << 20;  // 413
  size_t max_json_bytes = size_t{64} << 20;   // JSON in a body: 413
  size_t max_admin_body_bytes = 64 << 10;     // body of requests other than inference: 413
  int max_json_depth = 32;                    // nested arrays and objects: 400

  std::chrono::milliseconds header_timeout{10'000};  // first to last byte of a header: 408
  std::chrono::milliseconds body_timeout{30'000};    // a body, or an answer, without progress: 408
  std::chrono::milliseconds idle_timeout{75'000};    // between requests: closed
  // Minimum bytes per second that a client must send of a body, and read of an answer, after
  // body_timeout: 408.
  size_t min_transfer_rate = 1024;
  // When a client has closed its sending half or its whole connection, which look the same, the
  // first bytes of its answer are sent after this time. A client that is gone resets the
  // connection, and its request is cancelled.
  std::chrono::milliseconds closed_client_probe{500};
};

}  // namespace chairlift

#endif  // CHAIRLIFT_SERVER_LIMITS_H_
