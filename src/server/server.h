// The network front end of an Engine: Open Inference Protocol v2 over HTTP/1.1, and Prometheus
// metrics.
//
//   auto server = chairlift::Server::Start(*engine, {.http_port = 8000});
//   ...                                     // the threads of the server answer
//   (*server)->Drain(std::chrono::seconds(30));
//
// Thread-safe. The engine must outlive the server, and must still answer while the server stops:
// drain the server first, then shut down the engine.
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
  int http_port = 8000;       // 0: any free port, see Server::http_port()
  int metrics_port = 8002;    // 0: any free port; -1: no metrics port
  bool http_metrics = false;  // GET /metrics also on the HTTP port
  // "triton", "vllm": their names of metrics, served beside ours.
  std::vector<std::string> extra_metrics = {};
  int io_threads = 1;     // threads that read, parse small requests and answer
  int codec_threads = 2;  // threads that read large requests and write large answers
  bool ready = true;      // false: only after Server::SetReady()
  // Sites whose pages may read the answers, as "https://host:port"; "*": all. Not for metrics.
  std::vector<std::string> cors_origins = {};
  // Names that clients may use for the server to change it, in addition to its address and
  // localhost.
  std::vector<std::string> allowed_hosts = {};
  bool model_control = false;     // clients may load and unload models; otherwise 403
  bool strict_readiness = false;  // not ready while a model that should be loaded is not
  ServerLimits limits = {};
};

// Whether it is "127.0.0.1", "[::1]" or another address of this machine only.
bool IsLoopback(const std::string& address);

// The address and port as in a URL: "127.0.0.1:8000", "[::1]:8000".
std::string HostAndPort(const std::string& address, int port);

class Server {
 public:
  // Binds both ports and starts answering. kInvalidArgument: an invalid option; kUnavailable: an
  // address or port cannot be bound.
  static StatusOr<std::unique_ptr<Server>> Start(Engine& engine, const ServerOptions& options);

  virtual ~Server() = default;  // calls Stop()

  // Marks the server as ready: the models are loaded. Until then `v2/health/ready` answers 503, and
  // so does a request for a model that is not loaded yet.
  virtual void SetReady() = 0;

  // The ports in use; -1 if there is none.
  virtual int http_port() const = 0;
  virtual int metrics_port() const = 0;

  // From now on readiness is 503, and each answer ends its connection (`Connection: close`).
  // Connections and requests are still accepted, until load balancers have noticed.
  virtual void BeginDrain() = 0;
  // The same, and stops accepting; ends idle connections; waits up to `timeout` for the requests in
  // flight to be answered, then stops. The metrics port answers until then. kDeadlineExceeded if
  // some requests were cut off.
  virtual Status Drain(std::chrono::milliseconds timeout) = 0;
  // Cancels the requests in flight, waits until the engine has released them, and closes every
  // connection.
  virtual void Stop() = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_SERVER_SERVER_H_
