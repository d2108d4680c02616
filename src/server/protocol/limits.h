// Bounds on what a client controls, for every protocol. Each has its own error.
#ifndef CHAIRLIFT_SERVER_PROTOCOL_LIMITS_H_
#define CHAIRLIFT_SERVER_PROTOCOL_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace chairlift::protocol {

struct Limits {
  // Per request: ErrorKind::kInvalidRequest.
  int max_tensors = 256;                           // inputs, and outputs, listed in it
  int max_rank = 16;                               // dimensions of an input
  int64_t max_tensor_elements = int64_t{1} << 28;  // in one input
  int64_t max_texts = int64_t{1} << 16;            // in one input of BYTES
  size_t max_name_bytes = 256;  // of a model, version, input, output or request id

  // For all requests: kBusy.
  size_t max_buffered_bytes = size_t{2} << 30;  // bodies received, and answers not yet read
  int max_admin_requests = 64;                  // waiting loads and unloads

  // Per client, so that it cannot take the whole server: kClientLimit. A client is an IPv4 address
  // or an IPv6 /64.
  int max_client_requests = 2048;                      // in flight
  size_t max_client_buffered_bytes = size_t{1} << 30;  // like max_buffered_bytes
};

}  // namespace chairlift::protocol

#endif  // CHAIRLIFT_SERVER_PROTOCOL_LIMITS_H_
