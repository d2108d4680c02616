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
#include <vector>

#include "chairlift/engine.h"
#include "server/limits.h"

namespace chairlift {

struct ServerOptions {
  // A numeric IPv4 or IPv6 address, the latter with or without brackets, or "localhost".
  std::string address = "127.0.0.1";
  int http_port = 8000;       // 0: any free one, see Server::http_port()
  int metrics_port = 8002;    // 0: any free one; -1: no metrics port
  bool http_metrics = false;  // GET /metrics on the HTTP port, too
  int io_threads = 1;         // threads that read, parse small requests and answer
  int codec_threads = 2;      // threads that read large requests and write large answers
  bool ready = true;          // false: only once Server::SetReady() is called
  // Sites whose pages may read the answers, as "https://host:port"; "*": all. Not of the metrics.
  std::vector<std::string> cors_origins = {};
  // Names that clients call the server by, beside its address and localhost, to change it.
  std::vector<std::string> allowed_hosts = {};
  bool model_control = false;     // clients may load and unload models; else 403
  bool strict_readiness = false;  // not ready while a model that was to be loaded is not
  ServerLimits limits = {};
};

// "127.0.0.1", "[::1]" or another address of this machine alone.
bool IsLoopback(const std::string& address);

// The address and port as a URL has them: "127.0.0.1:8000", "[::1]:8000".
std::string HostAndPort(const std::string& address, int port);

class Server {
 public:
  // Binds both ports and starts answering. kInvalidArgument: an option makes no sense;
  // kUnavailable: an address or port cannot be bound.
  static StatusOr<std::unique_ptr<Server>> Start(Engine& engine, const ServerOptions& options);

  virtual ~Server() = default;  // as Stop()

  // Marks the server as ready: the models are loaded. Until then `v2/health/ready` answers 503, and
  // so does a request that names a model which is not there yet.
  virtual void SetReady() = 0;

  // The ports in use; -1 where there is none.
  virtual int http_port() const = 0;
  virtual int metrics_port() const = 0;

  // Readiness says 503 from now on, and each answer ends its connection (`Connection: close`).
  // Connections and requests are taken as before: until load balancers have noticed.
  virtual void BeginDrain() = 0;
  // Likewise, and stops accepting; ends idle connections; waits up to `timeout` for the requests in
  // flight to be answered, then stops. The metrics port answers until then. kDeadlineExceeded where
  // some were cut off.
  virtual Status Drain(std::chrono::milliseconds timeout) = 0;
  // Cancels what is in flight, waits for the engine to let go of it, closes every connection.
  virtual void Stop() = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_SERVER_SERVER_H_
