// A served model by URL, for load targets.
#ifndef CHAIRLIFT_CLI_LOAD_HTTP_TARGET_H_
#define CHAIRLIFT_CLI_LOAD_HTTP_TARGET_H_

#include <memory>
#include <string>
#include <vector>

#include "chairlift/engine.h"
#include "cli/load/http_connections.h"

namespace chairlift {

struct HttpModel {
  std::string host, port;
  std::string name;  // "minilm at http://127.0.0.1:8000"
  std::vector<TensorSpec> inputs;
  std::unique_ptr<HttpConnections> client;
};

// Connects, and reads the model's signature.
StatusOr<HttpModel> FindHttpModel(const std::string& url, const std::string& model,
                                  int connections);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_LOAD_HTTP_TARGET_H_
