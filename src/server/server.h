// The network front of an Engine: Open Inference Protocol v2 over HTTP/1.1, and Prometheus metrics.
//
//   auto server = chairlift::Server::Start(*engine, {.http_port = 8000});
//   ...                                     // the threads of the server answer
//   (*server)->Drain(std::chrono::seconds(30));
//
// Thread-safe. The engine must outlive the server, and must still answer while the server stops:
// drain the server first, shut the engine down after.
#ifndef CHAIRLIFT_SERVER_SERVER_H_
#define CHAIRLIFT_SERVER_SERVER_H_

#include <chrono>
#include <memory>
#include <string>

#include "chairlift/engine.h"
#include "server/limits.h"

namespace chairlift {

struct ServerOptions {
  std::string address = "127.0.0.1";  // a numeric IPv4 or IPv6 address, or "localhost"
  int http_port = 8000;               // 0: any free one, see Server::http_port()
  int metrics_port = 8002;            // 0: any free one; -1: no metrics port
  int io_threads = 1;                 // threads that read, parse and answer
  ServerLimits limits;
};

class Server {
 public:
  // Binds both ports and starts answering. kInvalidArgument: an option makes no sense;
  // kUnavailable: an address or port cannot be bound.
  static StatusOr<std::unique_ptr<Server>> Start(Engine& engine, const ServerOptions& options);

  virtual ~Server() = default;  // as Stop()

  // The ports in use; -1 where there is none.
  virtual int http_port() const = 0;
  virtual int metrics_port() const = 0;

  // Stops accepting, closes idle connections, answers the requests in flight with
  // `Connection: close`, waits for them up to `timeout`, then stops. kDeadlineExceeded where some
  // were cut off.
  virtual Status Drain(std::chrono::milliseconds timeout) = 0;
  // Cancels what is in flight, waits for the engine to let go of it, closes every connection.
  virtual void Stop() = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_SERVER_SERVER_H_
