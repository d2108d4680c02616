// A load generator's HTTP client: many keep-alive connections and few threads, each of which
// handles its share of them. It uses little of a machine that it shares with the server.
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
  // The body of an answer with status 200, valid during the call, or an error.
  using Done = std::function<void(const Status& status, std::string_view body)>;
  // The data of one server-sent event of an answer.
  using Event = std::function<void(std::string_view data)>;

  // Connections are opened on demand.
  static StatusOr<std::unique_ptr<HttpConnections>> Create(const std::string& host,
                                                           const std::string& port,
                                                           int connections);
  // Requests without an answer fail (kUnavailable).
  ~HttpConnections();

  // Sends a complete request, which must outlive the exchange, as soon as a connection is idle.
  // `done` runs on a thread of the client, and may send.
  void Send(std::string_view request, Done done);
  // The same for an answer in chunks of server-sent events: `event` runs for each as it arrives, on
  // the thread of `done`, whose body is then empty.
  void Stream(std::string_view request, Event event, Done done);
  // Like Send(), and waits for the body. Must not be called from `done`.
  StatusOr<std::string> Exchange(std::string_view request);

 private:
  class Loop;

  HttpConnections() = default;
  Loop& Best();

  std::vector<std::unique_ptr<Loop>> loops_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_LOAD_HTTP_CONNECTIONS_H_
