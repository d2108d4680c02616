// Bounds on everything a client controls. Each has its own error.
#ifndef CHAIRLIFT_SERVER_LIMITS_H_
#define CHAIRLIFT_SERVER_LIMITS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace chairlift {

// max_buffered_bytes counts the bodies being received and the answers that clients are slow to
// read; where an answer goes beyond it, its connection is closed.
struct ServerLimits {
  int max_connections = 4096;                      // open at once; one more: 503, closed
  size_t max_header_bytes = 16 << 10;              // request line and fields: 431
  size_t max_body_bytes = size_t{256} << 20;       // 413
  size_t max_json_bytes = size_t{64} << 20;        // JSON in a body: 413
  size_t max_buffered_bytes = size_t{2} << 30;     // bodies over all connections: 503
  int max_json_depth = 32;                         // nested arrays and objects: 400
  int max_tensors = 256;                           // inputs, and outputs, named in a request: 400
  int max_rank = 16;                               // dimensions of an input: 400
  int64_t max_tensor_elements = int64_t{1} << 28;  // of one input: 400
  size_t max_name_bytes = 256;  // of a model, version, input, output or request id: 400
  int max_admin_requests = 64;  // loads and unloads waiting: 503

  std::chrono::milliseconds header_timeout{10'000};  // first to last byte of a header: 408
  std::chrono::milliseconds body_timeout{30'000};    // a body, or an answer, without progress: 408
  std::chrono::milliseconds idle_timeout{75'000};    // between requests: closed
};

}  // namespace chairlift

#endif  // CHAIRLIFT_SERVER_LIMITS_H_
