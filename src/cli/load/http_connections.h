// A load generator's HTTP client: many keep-alive connections, few threads that each watch their
// share of them, so that it takes little of a machine that it shares with the server.
#ifndef CHAIRLIFT_CLI_LOAD_HTTP_CONNECTIONS_H_
#define CHAIRLIFT_CLI_LOAD_HTTP_CONNECTIONS_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chairlift/status.h"

namespace chairlift {

// Thread-safe.
class HttpConnections {
 public:
  // The body of an answer with status 200, valid during the call, or what went wrong.
  using Done = std::function<void(const Status& status, std::string_view body)>;
  // The data of one event of an answer that comes as server-sent events.
  using Event = std::function<void(std::string_view data)>;

  // Connections are opened when they are needed.
  static StatusOr<std::unique_ptr<HttpConnections>> Create(const std::string& host,
                                                           const std::string& port,
                                                           int connections);
  // Whatever has no answer yet fails (kUnavailable).
  ~HttpConnections();

  // Sends a whole request, which must outlive the exchange, as soon as a connection is free. `done`
  // runs on a thread of the client's, and may send.
  void Send(std::string_view request, Done done);
  // Likewise, of an answer in chunks of server-sent events: `event` runs for each as it comes, on
  // the thread of `done`, whose body is empty then.
  void Stream(std::string_view request, Event event, Done done);
  // As Send(), and waits for the body. Not from `done`.
  StatusOr<std::string> Exchange(std::string_view request);

 private:
  class Loop;

  HttpConnections() = default;
  Loop& Best();

  std::vector<std::unique_ptr<Loop>> loops_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_LOAD_HTTP_CONNECTIONS_H_
